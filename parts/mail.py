"""Mail: the sign-in links and digests that are sent by e-mail. Only the sweeper sends mail, and tries again.

The token of a mailed link is made when the mail is sent, since tokens are not stored. A digest lists the
notifications that a member has neither read nor seen on the page. It contains no token.
"""

import logging
import secrets
import smtplib
from collections.abc import Iterator
from contextlib import closing, suppress
from email.header import Header
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import EmailPolicy
from email.utils import localtime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import idna
from peewee import Case, fn

import schemas
from app import api
from database import Row, columns, digest, placeholder, statement
from errors import Conflict, TooMany
from limits import RateLimit, bound
from members import Invitation, Member, Transaction, profile
from metrics import metrics
from models import write
from parts.inbox import Notice
from settings import mail_password
from times import first_id, local_time, now, seconds_since
from webhooks import sending, tls_context
from wire import TOKEN, operation, request

log = logging.getLogger("tasks.mail")
link_limit = RateLimit(20, 3600)  # sign-in links, by client address
# Addresses that asked for a sign-in link. The request does not look for the member: its duration would show
# whether there is one.
asked: set[str] = set()

QUIET_SECONDS = bound("QUIET_SECONDS", 120.0)  # after a notice, so that it may be seen on the page
GAPS = {"at_once": 900.0, "daily": 86400.0}  # seconds from one digest to the next
AGAIN_SECONDS = bound("AGAIN_SECONDS", 30.0)  # before a mail is tried again, each time longer,
AGAIN_MOST = 6 * 3600.0  # up to this
MOST_NOTICES = 50  # in a digest
MAILED_SECONDS = 900.0  # for which a link is valid that is only mailed
MAX_MAILED = 3  # unused sign-in links of a member, and links of an hour that confirm an address
NEEDS_UTF8 = "it accepts only ASCII before the @ of an address (no SMTPUTF8); the mail is not tried again"
SAYINGS = {
    "assigned": "{who} assigned you {task}",
    "mentioned": "{who} mentioned you in {task}",
    "commented": "{who} commented on {task}",
    "question": "{who} asked you about {task}",
    "answered": "{who} answered your question on {task}",
    "review": "{who} asks you to review {task}",
    "unblocked": "{who} unblocked {task}",
    "claim_ended": "{who} did not finish in time: {task}",
    "stuck": "{who} got no further with {task}",
    "due": "{task} is due {due}",
    "sent_back": "{who} sent back {task}",
}

mailing: Row = {}  # the configuration, with the `password` for the mail server, and the `tls` context


def configure_mail(config: Row, password: str | None) -> None:
    """Set the mail server, and whether links are mailed, for which the sweeper is needed."""
    tls = config["MAIL"]["url"] and tls_context(config["DELIVERY"]["ca_file"])  # which takes 60 ms to make
    mailing.update(config, password=password, tls=tls)
    Invitation.is_mailed = bool(config["MAIL"]["url"]) and config["DELIVERY"]["sweeper"]


class Folding(EmailPolicy):
    """Headers in ASCII. Python's own folding loses blanks between encoded words (python/cpython#92081)."""

    def fold_binary(self, name: str, value: Any) -> bytes:
        (address,) = getattr(value, "addresses", (None,))
        text = address.display_name if address else str(value)
        if text.isascii():
            return f"{name}: {value}{self.linesep}".encode()
        folded = Header(text, header_name=name).encode(linesep=self.linesep)
        end = f"{self.linesep} <{address.addr_spec}>" if address else ""
        return f"{name}: {folded}{end}{self.linesep}".encode()


def hand_over(message: EmailMessage | None, to: str = "") -> None:
    """Send a message to this address by the mail server; without a message, only check the server.

    It uses TLS if that is offered. Raises `OSError`, and `ValueError` for a password that cannot be sent.
    """
    mail, tls, seconds = mailing["MAIL"], mailing["tls"], mailing["DELIVERY"]["timeout_seconds"]
    url = urlsplit(mail["url"])
    is_tls = url.scheme == "smtps"
    connect: Any = partial(smtplib.SMTP_SSL, context=tls) if is_tls else smtplib.SMTP
    # Google's relay refuses [127.0.0.1], Python's name for a machine without a full name.
    own_name = ascii_domain(mail["sender"])
    with closing(connect(url.hostname or "", url.port or 0, own_name, timeout=seconds)) as conversation:
        conversation.ehlo_or_helo_if_needed()
        if not is_tls and (is_tls := conversation.has_extn("starttls")):
            conversation.starttls(context=tls)
        if mail["user"]:
            if not is_tls:
                raise OSError("it offers no TLS, and the password is only sent over TLS")
            conversation.login(mail["user"], mailing["password"] or "")
        conversation.ehlo_or_helo_if_needed()
        users = [email.rpartition("@")[0] for email in (mail["sender"], to)]
        if not "".join(users).isascii() and not conversation.has_extn("smtputf8"):
            raise OSError(NEEDS_UTF8)
        if message:
            conversation.send_message(message, to_addrs=f"{users[1]}@{ascii_domain(to)}")
        with suppress(OSError):  # the message is accepted already
            conversation.quit()


def why_not_taken(message: EmailMessage | None, to: str = "") -> str | None:
    """Do as `hand_over`; return why that failed, without secrets that the server may repeat, or None."""
    try:
        hand_over(message, to)
    except (OSError, ValueError) as error:
        code, reply = getattr(error, "smtp_code", ""), getattr(error, "smtp_error", str(error))
        if isinstance(error, smtplib.SMTPRecipientsRefused):
            ((code, reply),) = error.recipients.values()
        text = reply.decode(errors="replace") if isinstance(reply, bytes) else reply
        text = TOKEN.sub(r"\1…", text.replace(mailing["password"] or "\0", "…")) or type(error).__name__
        text = one_line(f"answered {code} {text}" if code else text)
        return "".join(c if c.isprintable() else "?" for c in text)[:200]
    return None


def one_line(text: str) -> str:
    """Return the text in one line, without encoded words, which a header would decode (RFC 2047)."""
    return " ".join(text.split()).replace("=?", "= ?")


def ascii_domain(email: str) -> str:
    """Return the domain of the address in ASCII, which every mail server accepts."""
    return idna.encode(email.rpartition("@")[2], uts46=True).decode()


def mailbox(name: str, email: str) -> Address:
    return Address(one_line(name), email.rpartition("@")[0], ascii_domain(email))


def mail_member(member: Row, id: str, subject: str, text: str) -> str | None:
    """Send the member a mail; return why that failed, or None. A mail that is sent again has the same id."""
    message = EmailMessage(Folding(linesep="\r\n", cte_type="7bit"))  # not every server accepts 8 bits
    message["From"] = sender = mailbox(mailing["WORKSPACE"]["name"], mailing["MAIL"]["sender"])
    message["To"] = mailbox(member["full_name"], member["email"])
    message["Subject"] = one_line(subject)
    message["Date"] = localtime()
    message["Message-ID"] = f"<{id}@{sender.domain}>"
    message["Auto-Submitted"] = "auto-generated"
    message["X-Auto-Response-Suppress"] = "All"  # no out-of-office replies from Exchange
    message["List-Unsubscribe"] = f"<{mailing['SERVER']['base_url']}/#view=account>"
    message.set_content(f"{text}\nNobody reads replies to this address.\n")
    reason = why_not_taken(message, member["email"])
    metrics.mailed(reason is None)
    if reason and not member["mail_error"]:
        log.warning("mail to member %s failed: %s", member["id"], reason)
    return reason


def again_after(begun_at: str, reason: str | None) -> str | None:
    """Return when to try a mail again: after as long as it has waited so far; None for never."""
    if reason in (None, NEEDS_UTF8):
        return None
    return now(min(max(seconds_since(begun_at), AGAIN_SECONDS), AGAIN_MOST))


AskedShown = schemas.response_schema("Asked", email=str)


@api.post("/session/link")
@operation(schemas.MemberInput(only=["email"]), AskedShown, status=202, role=None, raises=(Conflict, TooMany))
def mail_sign_in_link(transaction: Transaction, email: str) -> Row:
    """Email a sign-in link that works once within 15 minutes. The response is the same for any address."""
    if not Invitation.is_mailed:
        raise Conflict("this server sends no mail; ask an owner or admin for a link")
    if not (verdict := link_limit.hit(request().client_address)).allowed:
        raise TooMany(verdict.seconds)
    asked.add(email)
    return {"email": email}


def write_asked() -> None:
    """Have links mailed to the members that asked for them; one may have asked too often."""
    while asked:
        member = Member.by_email.one(email=asked.pop())
        if member and member["status"] == Member.ACTIVE:
            with suppress(Conflict), write(member) as transaction:
                mail_to(transaction, member["id"])


def mail_to(transaction: Transaction, member_id: str, new_email: str | None = None) -> None:
    """Have a sign-in link mailed, which confirms `new_email` if set. Raises `Conflict` after `MAX_MAILED`."""
    since, confirms = first_id(now(-3600)), new_email is not None
    of_member = {"member_id": member_id, "confirms": confirms, "since": since, "now": transaction.at}
    if (links := Links.asked_for.value(**of_member)) >= MAX_MAILED:
        raise Conflict(f"{links} links were mailed lately; use the newest, or try again later")
    fields = {"mail_at": transaction.at, "new_email": new_email, "expires_at": now(MAILED_SECONDS)}
    token_hash = digest(secrets.token_urlsafe())
    Invitation.store(transaction, member_id=member_id, token_hash=token_hash, **fields)


Invitation.mail_to = mail_to


class Links:
    @statement
    def asked_for(cls: Any):
        """The number of a member's links: all open ones that can sign in.

        With `:confirms` it is the number of those since `:since` that confirm an address.

        Links that an admin made do not count, or they would lock the member out. Used and expired links to
        sign in do not count either: anybody can ask for them, and a stranger would leave the member none.
        """
        is_own = Invitation.created_by == Invitation.member
        confirms = Invitation.new_email.is_null(False) & (Invitation.id > placeholder("since"))
        signs_in = Invitation.new_email.is_null() & Invitation.is_open()
        counts = Case(placeholder("confirms"), [(1, confirms)], signs_in)
        links = Invitation.select(fn.COUNT(Invitation.id)).where(
            Invitation.member == placeholder("member_id")
        )
        return links.where(is_own, Invitation.old_email.is_null(), counts)

    @statement
    def to_mail(cls: Any):
        """An open link that is due to be mailed, with its creator."""
        creator = Member.alias("creator")
        rows = Invitation.select(*columns(Invitation), *profile(creator, "creator"))
        rows = rows.join(creator, on=(Invitation.created_by == creator.id))
        return rows.where(Invitation.mail_at <= placeholder("now"), Invitation.is_open()).limit(1)


def send_link() -> bool:
    """Send a link that is to be mailed; return whether there was one."""
    with write():
        link, token = Links.to_mail.one(now=now()), secrets.token_urlsafe(32)
        if not link:
            return False
        member = Member.stored(link["member_id"])
        Invitation.set_columns(link["id"], mail_hash=digest(token))
    name, who = mailing["WORKSPACE"]["name"], link["creator"]["full_name"]
    subject = what = f"Sign in to {name}"
    email = link["new_email"] or link["old_email"] or member["email"]
    if link["new_email"]:
        subject, what = f"Your address in {name}", f"Make {email} your address in {name}"
    elif member["status"] != Member.ACTIVE:
        subject, what = f"{who} invites you to {name}", f"Join {name}"
    text = f"{what} with this link. It works once, until {local_time(link['expires_at'])}.\n\n"
    text += f"{Invitation.link(mailing, token)}\n\n"
    text += "Anyone with this link can use it: do not forward this mail.\n"
    if link["old_email"]:
        subject = f"Your address in {name}"
        text = f"{who} changed your address in {name} to {member['email']}.\n"
        text += f"No more mail is sent to {email}. If you did not expect this, ask an owner or admin.\n"
    text = f"Hello {member['full_name']},\n\n{text}"
    reason = mail_member(member | {"email": email}, digest(token)[:32], subject, text)
    with write():
        Invitation.set_columns(link["id"], mail_at=again_after(link["created_at"], reason))
        if not link["old_email"]:
            Member.set_columns(member["id"], mail_error=reason and f"{now()} {reason}")
    return True


def send_digest() -> bool:
    """Send a member a digest of new notices; return whether there was such a member."""
    member = Notice.to_notify.one(now=now(), until=now(-QUIET_SECONDS))
    if not member:
        return False
    since = {"after": member["mailed_until"], "seen_at": member["seen_at"], "now": now()}
    news = Notice.news.all(member_id=member["id"], **since, most=MOST_NOTICES + 1)
    if not news:  # the member has just read it
        return True
    shown, base_url = news[:MOST_NOTICES], mailing["SERVER"]["base_url"]
    more = "" if shown == news else "More than "
    many = f"{more}{len(shown)} notifications from {mailing['WORKSPACE']['name']}"
    subject = many if news[1:] else sentence_of(news[0])
    text = f"Hello {member['full_name']},\n"
    for notice in shown:
        excerpt = f"    {one_line(notice['excerpt'])}\n" if notice["excerpt"] else ""
        text += f"\n{sentence_of(notice)}\n{excerpt}    {base_url}/#task={notice['task']['number']}\n"
    text += f"\nAnswer on the task's page.\nYour inbox: {base_url}/#view=inbox\n"
    text += f"Change when you get this mail: {base_url}/#view=account\n"
    reason = mail_member(member, news[0]["id"], subject, text)
    outcome: Row = {"mail_at": now(GAPS[member["mail"]]), "mailed_until": news[0]["id"]}
    if again := again_after(news[-1]["created_at"], reason):
        outcome = {"mail_at": again}
    outcome["mail_error"] = reason and f"{now()} {reason}"
    with write():
        Member.set_columns(member["id"], **outcome)
    return True


def sentence_of(notice: Row) -> str:
    due = local_time(notice["due_date"]) if notice["due_date"] else "soon"
    who, task = (notice["actor"] or {}).get("full_name", "Somebody"), notice["task"]
    parts = {"who": who, "task": f"#{task['number']} {one_line(task['title'])}", "due": due}
    return SAYINGS[notice["reason"]].format_map(parts)


def has_some() -> bool:
    due = {"now": now(), "until": now(-QUIET_SECONDS)}
    return Invitation.is_mailed and bool(Links.to_mail.one(**due) or Notice.to_notify.one(**due))


def send_all() -> None:
    while not sending.stopping.is_set() and (send_link() or send_digest()):
        continue


def problems(config: Row) -> Iterator[str]:
    """Yield why the mail server cannot be used. Raises `LookupError` if the password cannot be read."""
    configure_mail(config, mail_password(config))
    if Invitation.is_mailed and (reason := why_not_taken(None)):
        yield f"the mail server {config['MAIL']['url']}: {reason}"


def register(app: Any) -> None:
    app.notes.append(write_asked)
    app.starts.append(lambda config, secrets: configure_mail(config, secrets and secrets.mail_password))
    app.errands.append(("mails", has_some, send_all))
    app.problems.append(problems)
