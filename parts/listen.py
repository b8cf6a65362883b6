"""The command `listen`: the events of a service, posted to a program on this machine."""

import signal
import sys
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

import click
import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

import database
import limits
import schemas
import times
import webhooks
from commands import as_click_errors, cli

EVENTS_SINCE = click.DateTime(["%H:%M", "%Y-%m-%d", "%Y-%m-%dT%H:%M"])
# While a service is unreachable or overloaded.
AWAY = Retry(None, status_forcelist=(429, 502, 503, 504), backoff_factor=0.1, backoff_max=10)


@cli.command()
@click.option("--forward-to", "target", required=True, metavar="URL", help="The program that gets the calls.")
@click.option("--events", "names", multiple=True, default=["*"], metavar="NAME", help="Such as task.* only.")
@click.option("--since", type=EVENTS_SINCE, help="Begin with the events of that time, up to 30 days ago.")
@click.option("--url", envvar="TASKS_URL", required=True, help="The service (default: TASKS_URL).")
@click.option("--key", envvar="TASKS_KEY", required=True, help="An admin's API key (default: TASKS_KEY).")
@as_click_errors(requests.RequestException)
def listen(target: str, names: tuple[str, ...], since: datetime | None, url: str, key: str) -> None:
    """Post a service's events to a program here, until Ctrl-C.

    This needs no database or configuration here, and changes nothing on the service. The calls are like a
    webhook's. They are signed with a secret that is printed first; the same key has the same secret. Each
    event is sent once, and the response is printed. While the service is unreachable, it is tried again.
    """
    signal.signal(signal.SIGINT, lambda *_: sys.exit())
    if since and since.year == 1900:  # a time of today
        since = datetime.combine(datetime.now(), since.time())
    webhook = {"url": target, "format": "json", "secrets": [database.digest(f"listen {key}")]}
    webhooks.sending.adapter = webhooks.Adapter(webhooks.tls_context(None), 1, 1)
    query: dict[str, Any] = {"limit": 1}
    with requests.Session() as session:
        # requests would replace a header of the session by what ~/.netrc has for the host.
        session.auth = lambda call: call.headers.update(Authorization=f"Bearer {key}") or call
        while True:
            response = session.get(f"{url.rstrip('/')}{schemas.API}/events", params=query, timeout=60)
            if response.headers.get("Content-Type") != "application/json":
                raise click.ClickException(f"{url} is not the address of a task service")
            answer = response.json()
            if not response.ok:
                raise click.ClickException(answer["error"]["message"])
            if "wait" not in query:  # the address is right; from now on the service is waited for
                click.echo(f"Secret: {webhook['secrets'][0]}")
                session.mount(url, HTTPAdapter(max_retries=AWAY))
                begin = min(times.instant(since) if since else "9999", answer["meta"]["timestamp"])
                query = {"limit": 100, "wait": limits.WAIT_SECONDS, "since": begin}
                continue
            for event in answer["data"]["events"]:
                if any(fnmatchcase(event["event"], name) for name in names):
                    forward(event, webhook)
            query["after"] = answer["data"]["pagination"]["next_after"]


def forward(event: database.Row, webhook: database.Row) -> None:
    """Post the event once, and print the response."""
    id, name, body = event["id"], event["event"], database.to_json(event).decode()
    result = webhooks.send({"id": id, "event_id": id, "event": name, "body": body}, webhook, 15.0)
    click.echo(f"{event['timestamp']} {name} {id}: {result.error or f'answered {result.status}'}")
