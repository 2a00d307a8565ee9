"""One life of the real driver, on a journal and streams whose every step can be its last."""

from contextlib import contextmanager, suppress

import anyio
from anyio.abc import ByteStream

from codexdrv.driver import Driver
from codexdrv.errors import LifeEnded
from codexdrv.journal.journal import Journal
from codexdrv.protocol.questions import Policy
from tests.sim.clock import wall_clock_ms


class Killed(BaseException):
    """The process ended here: nothing of it writes any more, whatever it cleans up."""


class SteppedJournal(Journal):
    """The real journal; each transaction is a step, before and after."""

    def __init__(self, directory, step):
        super().__init__(directory)
        self._step = step
        # Nobody here cuts the power of the journal's disk; with fsync, most time would be its.
        self._database.execute("PRAGMA synchronous = OFF")

    @contextmanager
    def _transaction(self):
        self._step("before a commit")
        with super()._transaction() as database:
            yield database
        self._step("after a commit")


class SteppedStream(ByteStream):
    """Our end of a connection; each write is a step, before and after, and so is each read."""

    def __init__(self, life, link):
        self._life = life
        self._link = link

    async def send(self, item):
        await self._life.pass_step("before a write")
        self._life.world.laws.check_write(self._life, item)
        with self._link.writing(item):
            await self._link.ours.send(item)
        await self._life.pass_step("after a write")

    async def receive(self, max_bytes=65_536):
        data = await self._link.ours.receive(max_bytes)
        await self._life.pass_step("after a read")
        return data

    async def send_eof(self):
        await self._link.ours.send_eof()

    async def aclose(self):
        await self._link.ours.aclose()


class Life:
    """A supervisor's process, as far as the driver is concerned."""

    def __init__(self, world):
        self.world = world
        self.number = 0
        self.is_dead = False
        self._scope = anyio.CancelScope()
        self._thawed = None
        self._journal = None
        self.driver = None

    async def run(self) -> None:
        """Run until killed, stopped, or superseded by a newer life."""
        try:
            self._begin()
            with self._scope:
                await self.driver.run()
        except (Killed, LifeEnded) as end:
            self.world.say(f"life {self.number} ended: {type(end).__name__}")
        finally:
            self.die()
            if self._journal is not None:
                self._journal.close()

    def _begin(self) -> None:
        world = self.world
        self._journal = SteppedJournal(world.state, self.step)
        began_ms = wall_clock_ms()
        self.number = self._journal.begin_life((1, None, None), "sim", now_ms=began_ms)
        self.driver = Driver(
            world.config,
            self._journal,
            connect=lambda: world.connect(self),
            policy=Policy.LEAVE,
            life=self.number,
            began_ms=began_ms,
            version="sim",
            in_thread=self._in_place,
            surroundings=world.surroundings,
        )
        world.say(f"life {self.number} began")

    async def _in_place(self, work):
        # With the pause that a thread makes.
        await anyio.lowlevel.checkpoint()
        await self.thaw()
        if self.is_dead:
            raise Killed
        result = work()
        await self.thaw()
        return result

    def wrap(self, link) -> SteppedStream:
        return SteppedStream(self, link)

    # Steps.

    def step(self, name: str) -> None:
        """Count a step, and end here if this one was to be the last."""
        if self.is_dead:
            raise Killed
        if name == "after a commit":
            self.world.laws.check_journal()
        self.world.steps.tick(self, name)
        if self.is_dead:
            raise Killed

    async def pass_step(self, name: str) -> None:
        self.step(name)
        await self.thaw()
        if self.is_dead:
            raise Killed

    # What the world does to it.

    def die(self) -> None:
        """Be dead: the kernel closes what was open."""
        self.is_dead = True
        for link in self.world.links:
            if link.life is self:
                link.ours.cut()

    def kill(self) -> None:
        """End as by SIGKILL, wherever it is now."""
        self.die()
        self.unfreeze()
        self._scope.cancel()

    def freeze(self) -> None:
        """Stop as by SIGSTOP."""
        if self._thawed is None:
            self._thawed = anyio.Event()

    def unfreeze(self) -> None:
        if self._thawed is not None:
            self._thawed.set()
            self._thawed = None

    @property
    def is_frozen(self) -> bool:
        return self._thawed is not None

    async def thaw(self) -> None:
        """Wait while frozen."""
        while self._thawed is not None:
            await self._thawed.wait()

    async def stop(self, drain_s: float) -> None:
        """End as by SIGTERM: the answers that are open have some time to come."""
        with suppress(Killed, LifeEnded):
            await self.driver.drain(answers_s=drain_s)
        self._scope.cancel()
