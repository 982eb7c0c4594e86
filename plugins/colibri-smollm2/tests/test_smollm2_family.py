import colibri
from colibri.testing import family_suite

TestSmolLM2 = family_suite("smollm2")


def test_it_is_found_by_its_entry_point():
    info = next(info for info in colibri.load().plugins() if info.name == "smollm2")
    assert (info.distribution, info.families) == ("colibri-smollm2", ("smollm2",))
