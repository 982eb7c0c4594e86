import json
import subprocess
import sys
from hashlib import sha256
from importlib.metadata import EntryPoint

import pytest
from attrs import evolve

import colibri
from colibri import hookimpl, registry
from colibri.errors import CheckpointUnknown, DuplicateClaim, PluginError, UnknownFamily
from colibri.families import qwen
from colibri.family import Identity
from colibri_engine.errors import CheckpointError


@pytest.fixture(scope="module")
def any_family():
    return colibri.load(["colibri-smollm2"])["smollm2"]


def plugin(*families):
    class Plugin:
        @hookimpl
        def colibri_families(self):
            return families

    return Plugin()


def zebra(any_family, family_id="zebra", **identity):
    return evolve(any_family, id=family_id, identity=Identity(**{"model_types": ("zebra",), **identity}))


def checkpoint(tmp_path, model_type, template=None, name="checkpoint"):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    header = json.dumps({}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder


def test_the_smollm2_plugin_is_found_by_its_entry_point():
    families = colibri.load()
    assert "smollm2" in families
    assert families.distribution("smollm2") == "colibri-smollm2"
    info = next(info for info in families.plugins() if info.name == "smollm2")
    assert info.families == ("smollm2",)
    assert "colibri_families" in info.hooks
    assert not info.builtin
    assert info.error is None


def test_a_registry_is_a_mapping(any_family):
    families = colibri.load([plugin(zebra(any_family))])
    assert families["zebra"].id == "zebra"
    assert "zebra" in families
    assert "yak" not in families
    assert set(families) >= {"zebra"}
    assert len(families) == len(list(families))
    assert families.get("yak") is None
    assert families.get("zebra") is families["zebra"]
    with pytest.raises(UnknownFamily, match=r"^no family is called 'yak'; installed: .*zebra"):
        families["yak"]


def test_the_environment_names_what_is_loaded(monkeypatch):
    monkeypatch.setenv("COLIBRI_LOAD_PLUGINS", "")
    assert "smollm2" not in colibri.load()
    monkeypatch.setenv("COLIBRI_LOAD_PLUGINS", "colibri-smollm2")
    assert "smollm2" in colibri.load()
    monkeypatch.setenv("COLIBRI_LOAD_PLUGINS", "colibri-yak")
    with pytest.raises(PluginError, match="plugin colibri-yak is not installed"):
        colibri.load()


def test_a_disabled_plugin_is_left_out():
    assert "smollm2" not in colibri.load(disabled=["smollm2"])
    assert "smollm2" not in colibri.load(disabled=["colibri_smollm2"])


class Distribution:
    version = "1.0"

    def __init__(self, name, value):
        self.metadata = {"Name": name}
        self.entry_points = [EntryPoint(name, value, "colibri")]


def with_distribution(monkeypatch, name, value):
    monkeypatch.setattr(registry.metadata, "distributions", lambda: [Distribution(name, value)])


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
        ("import a_module_that_is_not_there", "ModuleNotFoundError: No module named"),
        ("def x(:", "SyntaxError"),
        (
            "import colibri\n@colibri.hookimpl\ndef colibri_family(): return []",
            "hook 'colibri_family' is not known",
        ),
        (
            "import colibri\n@colibri.hookimpl\ndef colibri_families(): return ['zebra']",
            "colibri_families returned str",
        ),
        ("import colibri\n@colibri.hookimpl\ndef colibri_families(): raise ValueError('x')", "ValueError: x"),
        ("import colibri\n@colibri.hookimpl\ndef colibri_families(): raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_broken_plugin_is_recorded_and_stops_only_those_who_ask(tmp_path, monkeypatch, source, reason):
    module = f"broken_{sha256(source.encode()).hexdigest()[:8]}"
    (tmp_path / f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with_distribution(monkeypatch, "colibri-broken", module)
    families = colibri.load()
    info = next(info for info in families.plugins() if info.distribution == "colibri-broken")
    assert reason in info.error
    with pytest.raises(UnknownFamily, match="failed to load: colibri-broken"):
        families["zebra"]
    with pytest.raises(PluginError, match="plugin colibri-broken failed to load: ") as caught:
        colibri.load(["colibri-broken"])
    assert reason in str(caught.value)


@pytest.mark.parametrize("answer", [None, 3, [3], "zebra", RuntimeError("no luck")])
def test_a_broken_plugin_object_is_an_error_that_names_its_class(answer):
    class Broken:
        @hookimpl
        def colibri_families(self):
            if isinstance(answer, Exception):
                raise answer
            return answer

    if answer is None:
        colibri.load([Broken()])
    else:
        with pytest.raises(PluginError, match="plugin Broken failed to load: "):
            colibri.load([Broken()])


def test_a_plugin_that_cannot_be_registered_is_an_error(any_family):
    class Curious:
        @hookimpl
        def colibri_families(self, weather):
            return []

    once = plugin(zebra(any_family))
    with pytest.raises(PluginError, match="plugin Plugin is registered twice; pass it once"):
        colibri.load([once, once])
    with pytest.raises(PluginError, match=r"plugin colibri\.families\.qwen is registered twice"):
        colibri.load([qwen])
    with pytest.raises(PluginError, match=r"plugin Curious cannot be registered: .*weather"):
        colibri.load([Curious()])


def test_one_name_may_stand_without_a_list():
    assert "smollm2" in colibri.load("colibri-smollm2")
    assert "smollm2" not in colibri.load(disabled="smollm2")


def test_one_id_claimed_twice_names_both(any_family):
    with pytest.raises(DuplicateClaim, match=r"family 'zebra' is claimed by Plugin and by Plugin;"):
        colibri.load([plugin(zebra(any_family)), plugin(zebra(any_family))])


def test_one_template_claimed_twice_names_both(any_family):
    one = zebra(any_family, template_hashes=frozenset({"ab" * 32}))
    other = zebra(any_family, "yak", template_hashes=frozenset({"ab" * 32}))
    with pytest.raises(DuplicateClaim, match=r"chat template abababababab… is claimed by zebra"):
        colibri.load([plugin(one), plugin(other)])


def test_one_claim_by_model_type_is_enough(any_family, tmp_path):
    families = colibri.load([plugin(zebra(any_family))])
    assert families.identify(checkpoint(tmp_path, "zebra")).id == "zebra"
    assert families.identify(checkpoint(tmp_path, " Zebra ", name="spaced")).id == "zebra"


def test_a_shared_model_type_is_decided_by_hash_then_by_marks(any_family, tmp_path):
    digest = sha256(b"{{ the official template }}").hexdigest()
    families = colibri.load(
        [
            plugin(
                zebra(any_family, template_hashes=frozenset({digest})),
                zebra(any_family, "zebra2", template_marks=("stripes=2",), template_absent=("spots",)),
            )
        ]
    )
    by_hash = checkpoint(tmp_path, "zebra", "{{ the official template }}", "hash")
    by_marks = checkpoint(tmp_path, "zebra", "{{ stripes=2 }}", "marks")
    assert families.identify(by_hash).id == "zebra"
    assert families.identify(by_marks).id == "zebra2"
    for name, template in (("none", None), ("other", "{{ x }}"), ("both", "stripes=2 spots")):
        with pytest.raises(CheckpointUnknown, match="may be zebra or zebra2"):
            families.identify(checkpoint(tmp_path, "zebra", template, name))


def test_a_family_that_needs_its_template_claims_nothing_by_model_type(any_family, tmp_path):
    one = zebra(any_family, needs_template=True, template_marks=("stripes",))
    families = colibri.load([plugin(one)])
    assert families.identify(checkpoint(tmp_path, "zebra", "stripes", "a")).id == "zebra"
    with pytest.raises(CheckpointUnknown, match="its chat template is not theirs"):
        families.identify(checkpoint(tmp_path, "zebra", "spots", "b"))


def test_an_unknown_architecture_lists_what_is_installed(any_family, tmp_path):
    families = colibri.load([plugin(zebra(any_family))])
    with pytest.raises(CheckpointUnknown, match=r"'okapi': no installed family knows it; .*zebra"):
        families.identify(checkpoint(tmp_path, "okapi"))


def test_odd_checkpoints_are_refused_in_a_sentence(any_family, tmp_path):
    families = colibri.load([plugin(zebra(any_family, needs_template=True, template_marks=("stripes",)))])
    folder = checkpoint(tmp_path, "zebra")
    for template in ("\ud800", [{"name": ["default"], "template": "stripes"}], [{"name": "default"}]):
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
        with pytest.raises(CheckpointUnknown, match="its chat template is not theirs"):
            families.identify(folder)
    with pytest.raises(CheckpointError, match="cannot be read: File name too long"):
        families.identify("a" * 5000)


def test_import_colibri_is_light():
    heavy = ("numpy", "aiohttp", "colibri_engine", "jinja2", "pluggy", "click", "rich", "tokenizers")
    code = f"import colibri, sys; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_can_be_imported():
    for name in colibri.__all__:
        assert getattr(colibri, name) is not None
    assert set(colibri.__all__) <= set(dir(colibri))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = colibri.nothing


def test_a_folder_without_weights_is_identified(any_family, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "zebra"}))
    assert colibri.load([plugin(zebra(any_family))]).identify(tmp_path).id == "zebra"
    assert colibri.load([plugin(zebra(any_family))]).identify(str(tmp_path)).id == "zebra"
