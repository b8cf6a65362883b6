"""Webhooks as messages of Slack and Discord: an event as a sentence."""

import html
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from database import Row
from times import local_time
from webhooks import bodies

DISCORD_MOST = 2000  # characters of a message
SHOWN_CHANGES = ("status", "priority")  # whose new values are words
Escape = Callable[[str], str]
Link = Callable[[str, str], str]  # of a URL and a text
# A chat message for each event; `task` is a link with the title.
SENTENCES = {
    "task.created": "{who} created {task}",
    "task.updated": "{who} changed {task}: {changes}",
    "task.completed": "{who} completed {task}",
    "task.deleted": "{who} deleted the task {title}",
    "task.due": "{task} is due {due}",
    "comment.added": "{who} commented on {task}: {comment}",
    "member.invited": "{who} invited {member}",
    "member.joined": "{member} joined",
    "ping": "This is a test of the webhook {webhook}.",
}


escape_discord = partial(re.sub, r"([\\`*_~|<>#\[\]():@-])", r"\\\1")
escape_slack = partial(html.escape, quote=False)
CHAT_FORMATS: dict[str, tuple[Escape, Link]] = {
    "slack": (escape_slack, lambda url, text: f"<{escape_slack(url)}|{text}>"),
    "discord": (escape_discord, lambda url, text: f"[{text}](<{url}>)"),
}


def chat_message(format: str, body: str, base_url: str) -> str:
    """Return the body of a message to Slack or Discord about the event with this body."""
    event = json.loads(body)
    text = sentence(event, base_url, *CHAT_FORMATS[format])
    if format == "slack":
        # Slack shows the blocks, which contain no markup. The text is for notifications and other chats.
        before, *link = sentence(event, base_url, str, "\0{}\0{}\0".format).split("\0")
        elements = [{"type": "text", "text": before}]
        if link:
            url, shown, after = link
            elements += [{"type": "link", "url": url, "text": shown}, {"type": "text", "text": after}]
        elements = [element for element in elements if element["text"]]
        section = {"type": "rich_text_section", "elements": elements}
        return json.dumps({"text": text, "blocks": [{"type": "rich_text", "elements": [section]}]})
    # A task's text, such as @everyone, must not notify anybody.
    return json.dumps({"content": text[:DISCORD_MOST], "allowed_mentions": {"parse": []}})


def sentence(event: Row, base_url: str, escape: Escape, link: Link) -> str:
    """Return a line that says who did what, with a link to the task."""
    data = event["data"]

    def shown(text: Any, most: int = 150) -> str:
        line = " ".join(str(text).split())
        return escape(line if len(line) <= most else line[: most - 1] + "…")

    parts = {"who": shown((event["actor"] or {}).get("full_name") or "Somebody")}
    parts["changes"] = ", ".join(changed(data.get("changes", {}), shown))
    if task := data.get("task"):
        parts["title"] = shown(task["title"])
        url = re.sub("[<>|]", lambda sign: f"%{ord(sign[0]):02X}", f"{base_url}/#task={task['id']}")
        parts["task"] = link(url, parts["title"])
        parts["due"] = shown(local_time(task["due_date"])) if task.get("due_date") else ""
    for name, column in {"comment": "content", "member": "full_name", "webhook": "name"}.items():
        if name in data:
            parts[name] = shown(data[name][column], 300 if name == "comment" else 150)
    return SENTENCES[event["event"]].format_map(parts)


def changed(changes: Mapping[str, list], shown: Escape) -> Iterator[str]:
    for name, (_, new) in changes.items():
        label = shown(name.removesuffix("_id").replace("_", " "))
        yield f"{label}: {shown(new.replace('_', ' '))}" if name in SHOWN_CHANGES else label


bodies.update(dict.fromkeys(CHAT_FORMATS, chat_message))
