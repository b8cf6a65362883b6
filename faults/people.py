"""Members, their keys and links as the contract has them, in memory, to compare with (`roles_model.py`)."""

from dataclasses import dataclass

ROLES = ("owner", "admin", "member", "client")  # each may do what those after it may
ADMINS = ("owner", "admin")


@dataclass(eq=False)
class Person:
    """A member, also one who is only invited."""

    id: str
    email: str
    role: str
    has_joined: bool = False


@dataclass(eq=False)
class Credential:
    """An API key or an enrollment link.

    `makers` are who made it and, where that was done with a key, that key's makers.
    """

    text: str
    holder: Person
    makers: frozenset[Person]
    id: str = ""  # of a key
    scope: str = "write"  # of a key
    works: bool = True  # it is neither revoked nor used up

    @property
    def is_given(self) -> bool:
        """Whether it works, and somebody else made it."""
        return self.works and self.makers != {self.holder}

    @property
    def chain(self) -> frozenset[Person]:
        """The makers of what is made with this key."""
        return self.makers | {self.holder}


class Workspace:
    """Who may do what. What is named after an action returns the statuses that may answer it."""

    def __init__(self, key: Credential):
        self.people, self.keys, self.links = [key.holder], [key], list[Credential]()

    def refusal(self, key: Credential, allowed: tuple[str, ...]) -> set[int]:
        """How a write is refused that these roles may do; empty if it is not."""
        if not key.works:
            return {401}
        return {403} if key.holder.role not in allowed or key.scope == "read" else set()

    def has_address(self, email: str) -> Person | None:
        return next((person for person in self.people if person.email == email), None)

    def involved(self) -> list[Person]:
        """Those who made a key or link for somebody else, or got one, or else everybody."""
        given = [credential.chain for credential in self.keys + self.links if credential.is_given]
        return [one for one in self.people if any(one in chain for chain in given)] or self.people

    def is_last_owner(self, person: Person) -> bool:
        return [one for one in self.people if one.role == "owner" and one.has_joined] == [person]

    def manages(self, actor: Person, other: Person) -> bool:
        """Whether the actor may manage the keys and the link of somebody else."""
        return actor.role == "owner" or (actor.role == "admin" and other.role != "owner")

    # Members

    def invite(self, key: Credential, email: str, role: str) -> set[int]:
        stored = self.has_address(email)
        if stored and stored.has_joined:
            return {409, 403} if key.holder.role != "owner" else {409}
        if "owner" in (role, stored and stored.role) and key.holder.role != "owner":
            return {403}
        return {200} if stored else {201}

    def change_role(self, key: Credential, person: Person, role: str) -> set[int]:
        if not self.manages(key.holder, person) or (role == "owner" != key.holder.role):
            return {403}
        return {409} if self.is_last_owner(person) else {200}

    def role_is_changed(self, key: Credential, person: Person, role: str) -> None:
        """What others made for a new owner ends, and what somebody with fewer rights now made for others."""
        if ROLES.index(role) > ROLES.index(person.role):
            self.end_what_was_made_by(person)
        if role == "owner":
            self.end_access(person, unless=(person, key.holder))
        person.role = role

    def end_access(self, person: Person, unless: tuple[Person, ...] = ()) -> None:
        for credential in self.keys + self.links:
            if credential.holder is person and not credential.makers <= {*unless}:
                credential.works = False

    def end_what_was_made_by(self, person: Person) -> None:
        for credential in self.keys + self.links:
            if credential.holder is not person and person in credential.makers:
                credential.works = False

    def remove(self, key: Credential, person: Person) -> set[int]:
        if not self.manages(key.holder, person):
            return {403}
        return {409} if self.is_last_owner(person) else {200}

    def is_removed(self, person: Person) -> None:
        self.end_access(person)
        self.end_what_was_made_by(person)
        self.people.remove(person)

    # Links and keys

    def make_link(self, key: Credential, person: Person) -> set[int]:
        return {201} if person is key.holder or self.manages(key.holder, person) else {403}

    def revoke_link(self, key: Credential, person: Person) -> set[int]:
        if person is not key.holder and not self.manages(key.holder, person):
            return {403}
        return {200} if any(link.works for link in self.links if link.holder is person) else {404}

    def end_link(self, person: Person) -> None:
        for link in self.links:
            if link.holder is person:
                link.works = False

    def link_is_made(self, key: Credential, person: Person, token: str) -> None:
        self.end_link(person)
        self.links.append(Credential(token, person, key.chain))

    def is_joined(self, link: Credential, id: str, text: str) -> None:
        """Of what comes of a sign-in link, the link's makers are makers too."""
        makers = link.chain if link.holder.has_joined else frozenset([link.holder])
        link.works = False
        link.holder.has_joined = True
        self.keys.append(Credential(text, link.holder, makers, id))

    def make_key(self, key: Credential, holder: Person) -> set[int]:
        return {201} if holder is key.holder or self.manages(key.holder, holder) else {403}

    def revoke_key(self, key: Credential, other: Credential) -> set[int]:
        if other.holder is key.holder or self.manages(key.holder, other.holder):
            return {200}
        return {403} if key.holder.role in ADMINS else {404}  # what one may not see does not exist
