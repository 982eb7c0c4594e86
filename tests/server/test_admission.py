"""The admission queue, against a slow and obvious model."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from colibri.server.admission import Admission, QueueFull, SchedulerClosed, State

TIMEOUT = 10.0


class AdmissionMachine(RuleBasedStateMachine):
    """Drives the queue with arrivals, hang-ups, departures and time, and checks what must always hold."""

    def __init__(self):
        super().__init__()
        self.queue = Admission(capacity=3, max_queue=4, queue_timeout=TIMEOUT)
        self.now = 100.0
        self.tickets = []
        self.gone = set()
        self.refused = 0

    def waiting(self):
        return [ticket for ticket in self.tickets if ticket.state is State.WAITING]

    def active(self):
        return [ticket for ticket in self.tickets if ticket.state is State.ADMITTED]

    def settle(self):
        before = self.waiting()
        free = set(range(3)) - {ticket.slot for ticket in self.active()}
        changed = self.queue.settle(self.now)
        blocked, expected = set(), []
        for ticket in before:
            if self.queue.closed:
                expected.append((ticket, State.CLOSED))
            elif id(ticket) in self.gone:
                expected.append((ticket, State.CANCELLED))
            elif self.now >= ticket.deadline:
                expected.append((ticket, State.TIMED_OUT))
            else:
                wanted = {0, 1, 2} if ticket.wanted is None else {ticket.wanted}
                options = (free - blocked) & wanted
                if options:
                    free.remove(min(options))
                    expected.append((ticket, State.ADMITTED))
                else:
                    blocked |= wanted
        assert [(ticket, ticket.state) for ticket in changed] == expected

    @rule(wanted=st.sampled_from([None, 0, 1, 2]), hung_up=st.booleans())
    def arrive(self, wanted, hung_up):
        waiting = self.waiting()
        blocked = set()
        for ticket in waiting:
            blocked |= {0, 1, 2} if ticket.wanted is None else {ticket.wanted}
        free = set(range(3)) - {ticket.slot for ticket in self.active()} - blocked
        straight_in = bool(free & ({0, 1, 2} if wanted is None else {wanted}))
        try:
            ticket = self.queue.enter(
                self.now, wanted, gone=lambda: any(id(t) in self.gone for t in [ticket])
            )
        except SchedulerClosed:
            assert self.queue.closed
            return
        except QueueFull:
            self.refused += 1
            assert len(waiting) >= 4
            assert not straight_in
            return
        assert not self.queue.closed
        assert straight_in or len(waiting) < 4
        self.tickets.append(ticket)
        if hung_up:
            self.gone.add(id(ticket))
        self.settle()

    @precondition(lambda self: self.waiting())
    @rule(data=st.data())
    def hang_up(self, data):
        self.gone.add(id(data.draw(st.sampled_from(self.waiting()))))
        self.settle()

    @precondition(lambda self: self.active())
    @rule(data=st.data(), outcome=st.sampled_from(["completed", "failed", "cancelled"]))
    def depart(self, data, outcome):
        self.queue.leave(data.draw(st.sampled_from(self.active())), outcome, self.now)
        self.settle()

    @rule(seconds=st.sampled_from([0.0, 0.5, 4.0, TIMEOUT]))
    def time_passes(self, seconds):
        self.now += seconds
        self.settle()

    @rule(seconds=st.sampled_from([-50.0, 1e9]))
    def clock_jumps(self, seconds):
        self.now += seconds
        self.settle()

    @precondition(lambda self: len(self.tickets) > 12)
    @rule()
    def close(self):
        self.queue.close()
        self.settle()

    @invariant()
    def one_ticket_a_slot(self):
        slots = [ticket.slot for ticket in self.active()]
        assert len(set(slots)) == len(slots)
        for ticket in self.active():
            assert ticket.wanted in (None, ticket.slot)

    @invariant()
    def nobody_waits_beside_a_free_slot(self):
        free = set(range(3)) - {ticket.slot for ticket in self.active()}
        waiting = self.waiting()
        if waiting:
            first = waiting[0]
            assert not (free if first.wanted is None else free & {first.wanted})

    @invariant()
    def counters_add_up(self):
        counts = self.queue.counters()
        assert counts.active == len(self.active())
        assert counts.queued == len(self.waiting()) <= 4
        assert counts.rejected == self.refused
        assert counts.timed_out == sum(ticket.state is State.TIMED_OUT for ticket in self.tickets)
        early = sum(ticket.state is State.CANCELLED for ticket in self.tickets)
        left = sum(ticket.state is State.LEFT for ticket in self.tickets)
        assert counts.admitted == counts.active + left
        assert counts.completed + counts.failed + counts.cancelled == left + early

    @invariant()
    def samples_are_not_negative(self):
        assert all(ticket.waited >= 0 and ticket.held >= 0 for ticket in self.tickets)

    def teardown(self):
        """Nobody starves: when the running ones leave, every waiter is served or times out, in order."""
        for ticket in self.active():
            self.queue.leave(ticket, "completed", self.now)
        self.settle()
        while self.waiting():
            before = len(self.waiting())
            for ticket in self.active():
                self.queue.leave(ticket, "completed", self.now)
            self.settle()
            assert len(self.waiting()) < before


AdmissionMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestAdmission = AdmissionMachine.TestCase


def test_no_queue_refuses_a_pinned_request_beside_a_free_slot():
    queue = Admission(capacity=2, max_queue=0, queue_timeout=TIMEOUT)
    first = queue.enter(0.0, 0)
    queue.settle(0.0)
    assert first.slot == 0
    with pytest.raises(QueueFull):
        queue.enter(0.0, 0)
    other = queue.enter(0.0)
    queue.settle(0.0)
    assert other.slot == 1


def test_a_full_queue_lets_through_who_need_not_wait():
    queue = Admission(capacity=2, max_queue=1, queue_timeout=TIMEOUT)
    queue.enter(0.0, 0)
    queue.settle(0.0)
    queue.enter(0.0, 0)
    queue.settle(0.0)
    assert queue.counters().queued == 1
    straight = queue.enter(0.0)
    queue.settle(0.0)
    assert straight.slot == 1


def test_deadline_comes_before_a_slot_that_is_free_now():
    queue = Admission(capacity=1, max_queue=1, queue_timeout=TIMEOUT)
    first = queue.enter(0.0)
    queue.settle(0.0)
    late = queue.enter(0.0)
    queue.leave(first, "completed", TIMEOUT)
    assert queue.settle(TIMEOUT) == [late]
    assert late.state is State.TIMED_OUT


def test_hang_up_before_admission_leaves_no_samples():
    queue = Admission(capacity=1, max_queue=1, queue_timeout=TIMEOUT)
    ticket = queue.enter(0.0, gone=lambda: True)
    queue.settle(0.0)
    assert ticket.state is State.CANCELLED
    assert (queue.counters().admitted, queue.counters().cancelled, ticket.waited) == (0, 1, 0.0)


def test_leaving_twice_is_a_mistake():
    queue = Admission(capacity=1, max_queue=1, queue_timeout=TIMEOUT)
    ticket = queue.enter(0.0)
    queue.settle(0.0)
    queue.leave(ticket, "failed", 1.0)
    with pytest.raises(ValueError, match="left"):
        queue.leave(ticket, "failed", 1.0)
