"""Which slot a prompt gets, and what of its beginning is there already."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri_engine.slots import Slot, Slots

from .counting import Memory

PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=12)


def run(slot: Slot, tokens: list[int]) -> Slot:
    """Let the slot remember these tokens."""
    for at in range(len(slot.history), len(tokens)):
        slot.state.tokens[at] = tokens[at]
    slot.history[:] = tokens
    return slot


def filled(slots: Slots, tokens: list[int], number: int | None = None) -> Slot:
    """A free slot that remembers these tokens."""
    slot = run(slots.acquire(tokens, number), tokens)
    slots.release(slot)
    return slot


def test_a_conversation_keeps_its_slot_and_others_take_the_oldest():
    slots = Slots(Memory, 2)
    first = filled(slots, [1, 2, 3, 4])
    second = filled(slots, [5, 6])
    assert second is not first
    assert slots.acquire([1, 2, 3, 4, 5]) is first
    assert first.history == [1, 2, 3, 4]
    slots.release(first)
    assert slots.acquire([7]) is second
    assert second.history == []


def test_a_prefix_of_a_busy_slot_is_copied():
    slots = Slots(Memory, 2)
    run(slots.acquire([1, 2, 3]), [1, 2, 3])
    second = slots.acquire([1, 2, 9])
    assert second.history == [1, 2]
    assert second.state.tokens == {0: 1, 1: 2}
    assert slots.acquire([1]) is None


def test_only_the_positions_that_a_slot_lacks_are_copied():
    slots = Slots(Memory, 3)
    filled(slots, [1, 2, 3, 4, 5, 6], 0)
    second = filled(slots, [1, 2, 3, 9], 1)
    before = second.state.copied
    assert slots.acquire([1, 2, 3, 4, 5, 7], 1) is second
    assert second.history == [1, 2, 3, 4, 5]
    assert second.state.copied - before == 2
    third = slots.acquire([1, 2, 3, 9, 9], 2)
    assert third.history == [1, 2, 3]


def test_the_own_memory_comes_first_among_equals():
    slots = Slots(Memory, 2)
    filled(slots, [1, 2, 3], 0)
    slot = filled(slots, [1, 2, 3], 1)
    before = slot.state.copied
    assert slots.acquire([1, 2, 3, 4], 1) is slot
    assert slot.state.copied == before


@pytest.mark.parametrize(("most", "kept"), [(None, 3), (9, 3), (2, 2), (0, 0)])
def test_a_history_is_no_longer_than_asked_and_leaves_a_token_to_run(most, kept):
    slots = Slots(Memory, 2)
    filled(slots, [1, 2, 3, 4])
    assert slots.acquire([1, 2, 3, 4], most=most).history == [1, 2, 3, 4][:kept]
    assert slots.acquire([1, 2, 3, 4], most=most).history == [1, 2, 3, 4][:kept]


@given(
    st.integers(1, 3), st.integers(0, 2), st.lists(st.tuples(PROMPTS, st.booleans()), max_size=12), st.data()
)
def test_a_slot_holds_what_its_history_says_and_no_memory_has_more(count, pins, prompts, data):
    slots = Slots(Memory, count, pins)
    for prompt, pin in prompts:
        number = data.draw(st.sampled_from([None, *range(count)]))
        most = data.draw(st.sampled_from([None, 0, 3]))
        known = [other.history[:] for other in [*slots, *slots.snapshots]]
        slot = slots.acquire(prompt, number, most)
        if slot is None:
            assert slots.busy == count or slots.at(number).busy
            continue
        n = len(slot.history)
        assert slot.history == prompt[:n]
        limit = len(prompt) - 1 if most is None else min(most, len(prompt) - 1)
        shared = [n for other in known for n in range(limit + 1) if other[:n] == prompt[:n]]
        assert n == max(shared, default=0)
        run(slot, prompt)
        if pin:
            slots.pin(slot)
        if data.draw(st.booleans()):
            slots.release(slot)
        for kept in [*slots, *slots.snapshots]:
            assert [kept.state.tokens[at] for at in range(len(kept.history))] == kept.history
        assert len(slots.snapshots) <= pins
        assert len(list(slots)) <= count
