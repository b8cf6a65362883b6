"""A real SMTP server, which keeps what it gets, and answers as told."""

import asyncio
import queue
import re
import socket
import threading
from email import message_from_bytes, policy

from aiosmtpd.smtp import SMTP, AuthResult
from harness import PATIENCE


class Mailbox:
    """It takes each mail unless told; `at_once_tls` is TLS from the beginning, `options` are aiosmtpd's.

    With `is_old` it is a mail server of 1995, which knows neither SMTPUTF8 nor 8BITMIME.
    """

    def __init__(self, at_once_tls=None, is_old=False, **options):
        self.is_old = is_old
        self.mails, self.answers, self.seen = queue.Queue(), [], []
        self.credentials, self.sessions = [], []
        self.loop = asyncio.new_event_loop()
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.url = f"{'smtps' if at_once_tls else 'smtp'}://127.0.0.1:{self.port}"
        options |= {"loop": self.loop, "hostname": "localhost", "authenticator": self.authenticate}
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

        def connect():
            self.sessions.append(SMTP(self, **options))
            return self.sessions[-1]

        server = self.loop.create_server(connect, sock=listener, ssl=at_once_tls)
        self.server = asyncio.run_coroutine_threadsafe(server, self.loop).result(PATIENCE)

    def authenticate(self, server, session, envelope, mechanism, data):
        self.credentials.append((data.login, data.password))
        return AuthResult(success=data.password == b"s3cret", handled=False)

    async def handle_EHLO(self, server, session, envelope, hostname, responses):
        session.host_name = hostname
        return [line for line in responses if not (self.is_old and "8BITMIME" in line)]

    async def handle_DATA(self, server, session, envelope):
        mail = message_from_bytes(envelope.content, policy=policy.default)
        mail.recipients, mail.raw = envelope.rcpt_tos, envelope.content
        self.seen.append(mail)
        answer = self.answers.pop(0) if self.answers else "250 OK"
        if self.is_old and not (mail.raw.isascii() and max(map(len, mail.raw.split(b"\r\n"))) < 999):
            answer = "554 these are no lines of 7 bits"
        if answer.startswith("250"):
            self.mails.put(mail)
        return answer

    def next(self, to=""):
        """The next mail, or that to this address."""
        while True:
            mail = self.mails.get(timeout=PATIENCE)
            if not to or mail.recipients == [to]:
                return mail

    def count(self, to):
        return sum(mail.recipients == [to] for mail in self.seen)

    def close(self):
        async def end():
            self.server.close()
            for session in self.sessions:
                if session.transport:
                    session.transport.abort()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            for _ in range(3):  # in which what was aborted is closed
                await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(end(), self.loop).result(PATIENCE)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE)
        self.loop.close()


def token_in(mail):
    """The token of the link in a mail."""
    return re.search(r"/enroll/([\w-]{43})\s", mail.get_content())[1]
