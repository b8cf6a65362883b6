"""Members, their keys and links as the contract has them, in memory, to compare with (`roles_model.py`).

Where the contract leaves open which of two refusals comes first, both are allowed.
"""

from dataclasses import dataclass

ROLES = ("owner", "admin", "member", "client")  # each may do what those after it may
ADMINS = ("owner", "admin")


@dataclass(eq=False)
class Person:
    """A member, also one who is only invited, or was removed."""

    id: str
    email: str
    role: str
    status: str = "invited"


@dataclass(eq=False)
class Key:
    """An API key. `makers` are who made it and, where that was done with a key, that key's makers."""

    id: str
    text: str
    holder: Person
    makers: frozenset[Person]
    scope: str = "write"
    ends: bool = False  # at some time
    is_revoked: bool = False

    @property
    def works(self) -> bool:
        return not self.is_revoked and self.holder.status == "active"

    @property
    def chain(self) -> frozenset[Person]:
        """The makers of what is made with this key."""
        return self.makers | {self.holder}


@dataclass(eq=False)
class Link:
    """An enrollment link, which is used up or revoked once it is not open."""

    token: str
    invited: Person
    makers: frozenset[Person]
    is_open: bool = True


class Workspace:
    """Who may do what. What is named after an action returns the statuses that may answer it."""

    def __init__(self, owner: Key):
        self.people, self.keys, self.links = [owner.holder], [owner], list[Link]()

    def refusal(self, key: Key | None, least: str = "client", *, writes=True) -> set[int]:
        """How the key is refused where a role is needed; empty if it is not."""
        if key is None or not key.works:
            return {401}
        allowed = ROLES[: ROLES.index(least) + 1]
        return {403} if key.holder.role not in allowed or (writes and key.scope == "read") else set()

    def has_address(self, email: str) -> Person | None:
        return next((one for one in self.people if one.email == email and one.status != "removed"), None)

    def is_last_owner(self, person: Person) -> bool:
        owners = [one for one in self.people if (one.role, one.status) == ("owner", "active")]
        return owners == [person]

    def is_lifeline(self, key: Key) -> bool:
        """Whether no other key lets an owner write."""
        strong = [
            key for key in self.keys if key.works and (key.holder.role, key.scope) == ("owner", "write")
        ]
        return strong == [key]

    def exposed(self) -> list[Person]:
        """Those who are no owners, and have a key or a link that others made."""
        keys = [key.holder for key in self.keys if key.works and key.makers != {key.holder}]
        links = [link.invited for link in self.links if link.is_open]
        return [person for person in keys + links if person.role != "owner"]

    # Members

    def invite(self, key: Key, email: str, role: str) -> set[int]:
        stored = self.has_address(email)
        if stored and stored.status == "active":
            return {409, 403} if key.holder.role != "owner" else {409}
        if "owner" in (role, stored and stored.role) and key.holder.role != "owner":
            return {403}
        return {200} if stored else {201}

    def change_role(self, key: Key, person: Person, role: str) -> set[int]:
        actor, old = key.holder, person.role
        is_refused = actor.role not in ADMINS and (role != old or person is not actor)
        is_refused |= role != old and "owner" in (role, old) and actor.role != "owner"
        if person.status == "removed":
            return {404, 403} if is_refused else {404}
        if is_refused:
            return {403}
        return {409} if role != old and self.is_last_owner(person) else {200}

    def role_is_changed(self, key: Key, person: Person, role: str) -> None:
        """What others made for a new owner ends, and what somebody with fewer rights now made for others."""
        if role == person.role:
            return
        if ROLES.index(role) > ROLES.index(person.role):
            self.end_what_was_made_by(person)
        person.role = role
        if role == "owner":
            self.end_access(person, unless=(person, key.holder))

    def end_access(self, person: Person, unless: tuple[Person, ...] = ()) -> None:
        for key in self.keys:
            key.is_revoked |= key.holder is person and not key.makers <= {*unless}
        for link in self.links:
            link.is_open &= link.invited is not person or link.makers <= {*unless}

    def end_what_was_made_by(self, person: Person) -> None:
        for key in self.keys:
            key.is_revoked |= key.holder is not person and person in key.makers
        for link in self.links:
            link.is_open &= person not in link.makers

    def remove(self, key: Key, person: Person) -> set[int]:
        is_refused = person.role == "owner" and key.holder.role != "owner"
        if person.status == "removed":
            return {404, 403} if is_refused else {404}
        if is_refused:
            return {403}
        return {409} if self.is_last_owner(person) else {200}

    def is_removed(self, person: Person) -> None:
        self.end_access(person)
        self.end_what_was_made_by(person)
        person.status = "removed"

    # Links

    def change_link(self, key: Key, person: Person, *, renews: bool) -> set[int]:
        refused = {403} if person.role == "owner" and key.holder.role != "owner" else set[int]()
        if person.status == "removed":
            return {404} | refused
        if person.status == "active":
            return {409} | refused
        is_open = any(link.is_open for link in self.links if link.invited is person)
        return refused or ({201} if renews else {200} if is_open else {404})

    def link_is_made(self, key: Key, person: Person, token: str) -> None:
        self.end_access(person)
        self.links.append(Link(token, person, key.chain))

    def is_joined(self, link: Link, id: str, text: str) -> None:
        link.is_open = False
        link.invited.status = "active"
        self.keys.append(Key(id, text, link.invited, frozenset([link.invited])))

    # Keys

    def manages(self, actor: Person, holder: Person) -> bool:
        return holder is actor or actor.role in (("owner",) if holder.role == "owner" else ADMINS)

    def make_key(self, key: Key, holder: Person, *, ends: bool) -> set[int]:
        problems = {422} if holder.status != "active" or (key.ends and not ends) else set[int]()
        return problems | (set() if self.manages(key.holder, holder) else {403}) or {201}

    def revoke_key(self, key: Key, other: Key) -> set[int]:
        if other.holder is not key.holder and key.holder.role not in ADMINS:
            return {404}  # what one may not see does not exist
        if other.holder.status == "removed":
            return {200, 403, 404}
        return {200} if self.manages(key.holder, other.holder) else {403}
