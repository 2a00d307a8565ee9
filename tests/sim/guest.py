"""Another client of the same server: the user's own."""

from codexdrv.wire.message import Request, encode


class Guest:
    """Says the same things as our callers, with ids of its own or with none."""

    def __init__(self, world):
        self._world = world
        self._connection = None
        self._numbers = 0

    def say(self, thread, text) -> None:
        """Put a text into a thread, as a client that knows what runs there."""
        running = thread.running
        if not thread.is_loaded:
            self._request("thread/resume", threadId=thread.id)
        self._numbers += 1
        params = {
            "threadId": thread.id,
            "clientUserMessageId": f"guest-{self._numbers}" if self._numbers % 2 else None,
            "input": [{"type": "text", "text": text}],
        }
        self._world.say(f"a guest says {text!r} to {thread.id[-4:]}")
        if running is None or self._numbers % 3 == 0:
            self._request("turn/start", **params)
        else:
            self._request("turn/steer", expectedTurnId=running.id, **params)

    def interrupt(self, thread) -> None:
        if thread.running is not None:
            self._world.say(f"a guest interrupts {thread.id[-4:]}")
            self._request("turn/interrupt", threadId=thread.id, turnId=thread.running.id)

    def _request(self, method, **params) -> None:
        server = self._world.server
        if not server.is_up:
            return
        if self._connection is None or self._connection.is_dropped:
            self._connection = server.connect()
            self._connection.is_greeted = True
        server.receive(self._connection, encode(Request(self._numbers, method, params)))
        self._connection.forget()
