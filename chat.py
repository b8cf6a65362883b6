"""An event as one line of text, in the form in which the webhooks of Slack and Discord take it."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

Escape = Callable[[str], str]
Link = Callable[[str, str], str]  # of a URL and a text
CHATS = ("slack", "discord")
DISCORD_MOST = 2000  # characters of a message
SHOWN_CHANGES = ("status", "priority")  # whose new values are words


def message(format: str, event: str, base_url: str) -> str:
    """The body of a call that says what the event, which is JSON, says."""
    told = json.loads(event)
    text = sentence(told, base_url, *FORMATS[format])
    if format == "slack":
        # Slack shows the blocks, in which nothing is markup; the text is for notifications, and other chats.
        parts = sentence(told, base_url, str, "\0{}\0{}\0".format).split("\0")
        elements = [{"type": "text", "text": part} for part in parts if part]
        if len(parts) > 1:
            elements[1:3] = [{"type": "link", "url": parts[1], "text": parts[2]}]
        section = {"type": "rich_text_section", "elements": elements}
        return json.dumps({"text": text, "blocks": [{"type": "rich_text", "elements": [section]}]})
    # Nobody is called by what stands in a task, such as @everyone.
    return json.dumps({"content": text[:DISCORD_MOST], "allowed_mentions": {"parse": []}})


def sentence(event: dict[str, Any], base_url: str, escape: Escape, link: Link) -> str:
    """Who did what, with a link to the task."""
    data, name = event["data"], event["event"]

    def shown(text: Any, most: int = 150) -> str:
        line = " ".join(str(text).split())
        return escape(line if len(line) <= most else line[: most - 1] + "…")

    who, task = shown((event["actor"] or {}).get("full_name") or "Somebody"), data.get("task")
    if name == "ping":
        return f"This is a test of the webhook {shown(data['webhook']['name'])}."
    if task is None:  # member.invited and member.joined
        member = shown(data["member"]["full_name"])
        return f"{member} joined" if name == "member.joined" else f"{who} invited {member}"
    title = shown(task["title"])
    if name == "task.deleted":
        return f"{who} deleted the task {title}"
    url = re.sub("[<>|]", lambda sign: f"%{ord(sign[0]):02X}", f"{base_url}/#task={task['id']}")
    linked = link(url, title)
    if name == "comment.added":
        return f"{who} commented on {linked}: {shown(data['comment']['content'], 300)}"
    if name == "task.updated":
        return f"{who} changed {linked}: {', '.join(changed(data['changes'], shown))}"
    return f"{who} {'completed' if name == 'task.completed' else 'created'} {linked}"


def changed(changes: Mapping[str, list], shown: Callable[[Any], str]) -> list[str]:
    """What was changed, field by field."""
    texts = []
    for field, (_, new) in changes.items():
        label = shown(field.removesuffix("_id").replace("_", " "))
        texts.append(f"{label}: {shown(new.replace('_', ' '))}" if field in SHOWN_CHANGES else label)
    return texts


def escape_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def escape_discord(text: str) -> str:
    return re.sub(r"([\\`*_~|<>#\[\]():@-])", r"\\\1", text)


FORMATS: dict[str, tuple[Escape, Link]] = {
    "slack": (escape_slack, lambda url, text: f"<{escape_slack(url)}|{text}>"),
    "discord": (escape_discord, lambda url, text: f"[{text}](<{url}>)"),
}
