"""What can happen in a world: callers, another client of the server, and all that can go wrong."""

import anyio

from codexdrv.rules.lifecycle import WhenBusy
from tests.fakes.server import Stage
from tests.sim.guest import Guest


TEXTS = ("hello", "go on", "and again")
"""Few, so that ours are often equal to each other's and to another client's."""
STEPS_AHEAD = 40
"""A bomb goes off within so many steps; a delivery takes some thirty."""


class Faults:
    """Each method lets one thing happen, chosen by chance, and ends it later where it can end."""

    def __init__(self, world, threads, chance):
        self.world = world
        self.threads = threads
        self.chance = chance
        self.guest = Guest(world)
        self.admitted: list[str] = []

    # What is no fault: callers and clients.

    def admit(self) -> None:
        name = f"m{len(self.admitted) + 1}"
        self.admitted.append(name)
        when_busy = self.chance.choice((WhenBusy.STEER, *WhenBusy))
        thread = self.chance.choice(self.threads)
        self.world.admit(name, thread, self.chance.choice(TEXTS), when_busy)

    def cancel(self) -> None:
        if self.admitted:
            self.world.cancel(self.chance.choice(self.admitted))

    def guest_input(self) -> None:
        self.guest.say(self.chance.choice(self.threads), self.chance.choice(TEXTS))

    def guest_interrupt(self) -> None:
        self.guest.interrupt(self.chance.choice(self.threads))

    def compaction(self) -> None:
        thread = self.chance.choice(self.threads)
        self.world.say(f"compaction of {thread.id[-4:]}")
        self.world.server.start_compaction(thread, self.chance.uniform(0.1, 10.0))

    def revert(self) -> None:
        """WIRE-FACTS: `thread/revert` begins a new file, `thread/rollback` (0.144.5) keeps it."""
        thread = self.chance.choice(self.threads)
        is_quiet = thread.running is None and thread.is_loaded and thread.writes_record
        if len(thread.turns) > 1 and is_quiet:
            before = self.chance.choice(thread.turns[1:][-2:])
            self.world.truth.shortened.add(thread.id)
            self.world.say(f"revert of {thread.id[-4:]}")
            self.world.server.revert(thread, before)

    def unload(self) -> None:
        """WIRE-FACTS: a thread is unloaded some time after its last subscriber has left."""
        thread = self.chance.choice(self.threads)
        if thread.is_loaded and thread.running is None and self.world.server.is_up:
            self.world.say(f"{thread.id[-4:]} is unloaded")
            self.world.server.unload(thread)

    # Threads that behave otherwise for a while.

    def hold_turns(self) -> None:
        self._flag("holds_turns", 1.0, 60.0)

    def hold_steers(self) -> None:
        """WIRE-FACTS: "a steer while an approval waits becomes an item only after the approval"."""
        self._flag("holds_steers", 1.0, 60.0)

    def hook(self) -> None:
        """WIRE-FACTS: "a `UserPromptSubmit` hook that blocks: answered, …, no item"."""
        self._flag("blocks_input", 0.5, 30.0)

    def archive(self) -> None:
        self._flag("is_archived", 1.0, 30.0)

    def other_writer(self) -> None:
        """WIRE-FACTS: a second server on the same home has the thread."""
        self._flag("is_held_elsewhere", 1.0, 30.0)

    def stale_reads(self) -> None:
        """WIRE-FACTS: "Cold reads are stale"."""
        self._flag("lags_cold", 60.0, 600.0)

    def full_disk(self) -> None:
        """WIRE-FACTS: "`item/completed` is not storage either"."""
        self.world.say("the disk is full")
        self.world.has_room = False
        for thread in self.threads:
            thread.writes_record = False
            self.world.truth.unsaved.add(thread.id)
        self._later(1.0, 30.0, self._make_room)

    def _make_room(self) -> None:
        self.world.say("the disk has room")
        self.world.has_room = True
        # "Codex will continue retrying": it does not know at once.
        self._later(0.0, 10.0, self._save)

    def _save(self) -> None:
        if self.world.has_room:
            self.world.say("the records are saved")
            for thread in self.threads:
                thread.save()

    def database_lock(self) -> None:
        """WIRE-FACTS: "Status lags": 15.4 s, 31 s, no bound is known."""
        thread, seconds = self.chance.choice(self.threads), self.chance.choice((4.0, 15.4, 31.0))
        self.world.say(f"the database of {thread.id[-4:]} is locked for {seconds} s")
        self.world.server.locked_until[thread.id] = anyio.current_time() + seconds

    # The server.

    def overload(self) -> None:
        share = self.chance.choice((30, 100))
        self.world.say(f"the server is overloaded by {share} %")
        self.world.server.overload = share
        self._later(0.5, 20.0, self._end_overload)

    def _end_overload(self) -> None:
        self.world.server.overload = 0

    def kill_server(self) -> None:
        if self.world.server.is_up:
            self.world.say("the server is killed")
            self.world.server.die()
        self._revive()

    def kill_server_at_stage(self) -> None:
        """WIRE-FACTS: the pair of lines cut in the middle, and the moments before and after."""
        stage = self.chance.choice(tuple(Stage))
        for thread in self.threads:
            thread.lags_cold = self.chance.random() < 0.5
        self.world.say(f"the server is to be killed when an input is {stage}")
        self.world.server.dies_at = stage
        self._later(0.0, 20.0, self._disarm)

    def _disarm(self) -> None:
        self.world.server.dies_at = None
        self._revive()

    def drain_server(self) -> None:
        self.world.say("the server drains")
        self.world.server.drain()
        self._later(5.0, 60.0, self._revive)

    def stop_server(self) -> None:
        """A laptop that is suspended, a debugger, a swap storm: SIGSTOP, then SIGCONT."""
        seconds = self.chance.choice((0.5, 5.0, 35.0))
        self.world.say(f"the server is stopped for {seconds} s")
        self.world.server.stop()
        self._later(seconds, seconds, self.world.server.proceed)

    def _revive(self) -> None:
        self._later(0.0, 5.0, self._start_server)

    def _start_server(self) -> None:
        world = self.world
        if world.server.is_up:
            return
        old = world.process.pid
        match self.chance.randrange(3):
            case 0 if not world.processes.has_pid(old):
                world.start_server(old)  # its own pid again, with other ticks
            case 1 if not world.processes.has_pid(old):
                world.processes.start(old)  # somebody else's now
                world.start_server()
            case _:
                world.start_server()

    # Links.

    def cut_link(self) -> None:
        for link in self.world.links:
            end = self.chance.choice((link.ours, link.theirs))
            self.world.say("a link is cut")
            end.cut()

    def break_write(self) -> None:
        how = self.chance.choice(("before", "during", "after"))
        self.world.say(f"the link is to break {how} the next input")
        for link in self.world.links:
            link.breaks = how

    # The driver.

    def kill_driver(self) -> None:
        self._plant("the driver's end", lambda life: life.die())
        self.world.restart_s = self.chance.choice((0.0, 0.05, 2.0))

    def pause_driver(self) -> None:
        seconds = self.chance.choice((0.1, 3.0, 40.0))
        self._plant(f"a pause of {seconds} s", lambda life: self.pause(life, seconds))

    def stop_driver(self) -> None:
        life = self.world.life
        if life is not None and not life.is_dead and life.driver is not None:
            self.world.say("the driver is told to stop")
            self.world.tasks.start_soon(life.stop, 5.0)

    def pause(self, life, seconds) -> None:
        life.freeze()
        self._later(seconds, seconds, life.unfreeze)
        if self.chance.random() < 0.3:
            self._later(0.0, seconds, lambda: self._supersede(life))

    def _supersede(self, life) -> None:
        """Begin a newer life beside one that is paused.

        Not beside one whose `pending` is committed: its bytes may follow whatever we do. Against
        that there is the lock, which the simulator leaves out here.
        """
        if life is self.world.life and life.is_frozen and not self.world.caller.pending():
            self.world.say(f"a newer life begins beside life {life.number}")
            self.world.begin_life()

    # Means.

    def plant(self, happening) -> None:
        """Let something happen in the middle of what the driver does."""
        self._plant(happening.__name__, lambda _: happening(self))

    def _plant(self, what, bomb) -> None:
        steps = self.world.steps
        step = steps.count + self.chance.randint(1, STEPS_AHEAD)
        self.world.say(f"{what} is to come at step {step}")
        steps.bombs[step] = bomb

    def _flag(self, name, least, most) -> None:
        thread = self.chance.choice(self.threads)
        self.world.say(f"{thread.id[-4:]}: {name}")
        setattr(thread, name, True)
        self._later(least, most, lambda: self._unflag(thread, name))

    def _unflag(self, thread, name) -> None:
        self.world.say(f"{thread.id[-4:]}: no more {name}")
        setattr(thread, name, False)

    def _later(self, least, most, work) -> None:
        self.world.tasks.start_soon(self._do_later, self.chance.uniform(least, most), work)

    async def _do_later(self, seconds, work) -> None:
        await anyio.sleep(seconds)
        if not self.world.is_healed:
            work()


PLANTABLE = frozenset(
    {
        Faults.cut_link,
        Faults.compaction,
        Faults.drain_server,
        Faults.full_disk,
        Faults.guest_input,
        Faults.guest_interrupt,
        Faults.kill_server,
        Faults.overload,
        Faults.revert,
        Faults.stop_server,
        Faults.unload,
    }
)
"""What may also happen between two steps of the driver."""

FAULTS = (
    (8, Faults.guest_input),
    (2, Faults.guest_interrupt),
    (3, Faults.compaction),
    (3, Faults.revert),
    (2, Faults.unload),
    (1, Faults.cancel),
    (3, Faults.hold_turns),
    (3, Faults.hold_steers),
    (2, Faults.hook),
    (2, Faults.archive),
    (3, Faults.other_writer),
    (2, Faults.stale_reads),
    (4, Faults.full_disk),
    (4, Faults.database_lock),
    (2, Faults.overload),
    (5, Faults.kill_server),
    (6, Faults.kill_server_at_stage),
    (2, Faults.drain_server),
    (4, Faults.stop_server),
    (4, Faults.cut_link),
    (8, Faults.break_write),
    (8, Faults.kill_driver),
    (3, Faults.pause_driver),
    (1, Faults.stop_driver),
)
"""How often each happens, against the others."""
