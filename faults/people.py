"""A model of members, keys and links in memory, which `roles_model.py` compares with the service."""

from dataclasses import dataclass

ROLES = ("owner", "admin", "member", "client")  # each includes the rights of the next ones
ADMINS = ("owner", "admin")


@dataclass(eq=False)
class Person:
    """A member, or an invited person who has not joined yet."""

    id: str
    email: str
    role: str
    has_joined: bool = False


@dataclass(eq=False)
class Credential:
    """An API key, or an invitation or sign-in link.

    `makers` contains the member who made it. If that member used a key, it also contains that key's makers.
    """

    text: str
    holder: Person
    makers: frozenset[Person]
    id: str = ""  # of a key
    scope: str = "write"  # of a key
    works: bool = True  # it is neither revoked nor used up

    @property
    def is_given(self) -> bool:
        """Return whether it works, and somebody other than the holder made it."""
        return self.works and self.makers != {self.holder}

    @property
    def chain(self) -> frozenset[Person]:
        """Return the makers of anything that is made with this key."""
        return self.makers | {self.holder}


class Workspace:
    """The rights of all members. A method named after an action returns the possible statuses."""

    def __init__(self, key: Credential):
        self.people, self.keys, self.links = [key.holder], [key], list[Credential]()

    def refusal(self, key: Credential, allowed: tuple[str, ...]) -> set[int]:
        """Return the statuses that refuse a write for `allowed` roles, empty if the key may do it."""
        if not key.works:
            return {401}
        return {403} if key.holder.role not in allowed or key.scope == "read" else set()

    def has_address(self, email: str) -> Person | None:
        return next((person for person in self.people if person.email == email), None)

    def involved(self) -> list[Person]:
        """Return the members who made a key or link for another, or got one, or else all members."""
        given = [credential.chain for credential in self.keys + self.links if credential.is_given]
        return [one for one in self.people if any(one in chain for chain in given)] or self.people

    def is_last_owner(self, person: Person) -> bool:
        return [one for one in self.people if one.role == "owner" and one.has_joined] == [person]

    def manages(self, actor: Person, other: Person) -> bool:
        """Return whether the actor may manage the keys and the link of `other`."""
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
        """Change the role, and end keys and links.

        These are the ones that others made for a new owner, or that a demoted member made for others.
        """
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
        """Use a link. The link's makers are also makers of the key that comes from a sign-in link."""
        makers = link.chain if link.holder.has_joined else frozenset([link.holder])
        link.works = False
        link.holder.has_joined = True
        self.keys.append(Credential(text, link.holder, makers, id))

    def make_key(self, key: Credential, holder: Person) -> set[int]:
        return {201} if holder is key.holder or self.manages(key.holder, holder) else {403}

    def revoke_key(self, key: Credential, other: Credential) -> set[int]:
        if other.holder is key.holder or self.manages(key.holder, other.holder):
            return {200}
        return {403} if key.holder.role in ADMINS else {404}  # a hidden key does not exist
