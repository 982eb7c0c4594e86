"""Finding plugins, and the families they bring."""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

import pluggy
from attrs import frozen

from colibri import families as builtin_families
from colibri import hookspecs
from colibri.errors import CheckpointUnknown, ColibriError, DuplicateClaim, PluginError, UnknownFamily
from colibri.family import Family, Identity

if TYPE_CHECKING:
    from colibri_engine.checkpoint import Label

__all__ = ["ENTRY_POINT_GROUP", "LOAD_PLUGINS", "PluginInfo", "Registry", "find_plugins", "load"]

ENTRY_POINT_GROUP = "colibri"
LOAD_PLUGINS = "COLIBRI_LOAD_PLUGINS"
"""Environment variable: comma-separated distributions to load; empty loads built-ins only."""


@frozen
class PluginInfo:
    """One plugin: its name, the distribution that brought it, what it offers or why it failed."""

    name: str
    distribution: str
    version: str
    builtin: bool
    families: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    error: str | None = None


class Registry(Mapping[str, Family]):
    """The installed families by id, in the order of their plugins."""

    def __init__(self, manager: pluggy.PluginManager, found: Iterable[PluginInfo]) -> None:
        self.manager = manager
        self._found = {info.name: info for info in found}
        self._families: dict[str, Family] = {}
        self._owner: dict[str, str] = {}
        self._collect()

    def __getitem__(self, family_id: str) -> Family:
        try:
            return self._families[family_id]
        except KeyError:
            raise UnknownFamily(
                f"no family is called {family_id!r}; installed: {', '.join(self._families) or 'none'}"
                f"{self._failures()}"
            ) from None

    def __contains__(self, family_id: object) -> bool:
        return family_id in self._families

    def __iter__(self) -> Iterator[str]:
        return iter(self._families)

    def __len__(self) -> int:
        return len(self._families)

    def plugins(self) -> tuple[PluginInfo, ...]:
        """Every plugin that was found, those that failed to load included."""
        return tuple(self._found.values())

    def distribution(self, family_id: str) -> str:
        """The distribution that brought a family.

        Raises:
            UnknownFamily: no such family is installed.
        """
        return self._owner[self[family_id].id]

    def identify(self, path: str | os.PathLike[str]) -> Family:
        """The family of a checkpoint: a folder with config.json, with or without weights, or a .gguf file.

        An official chat template, known by its hash, decides at once. Otherwise the architecture does,
        and where variants share one, features that only one of their templates has.

        Raises:
            CheckpointUnknown: no installed family claims it, or several do and its template does not
                decide.
            colibri_engine.errors.CheckpointError: the checkpoint cannot be read.
        """
        from colibri_engine.checkpoint import read_label

        return self._identify(read_label(path), os.fspath(path))

    def _identify(self, label: Label, path: str) -> Family:
        architecture = label.architecture.strip().lower()
        template = label.chat_template
        claims = [family for family in self._families.values() if architecture in family.model_types]
        if template is not None:
            digest = sha256(template.encode("utf-8", "surrogatepass")).hexdigest()
            same_hash = [
                family for family in self._families.values() if digest in family.identity.template_hashes
            ]
            marked = [family for family in claims if _has_marks(family.identity, template)]
            for matches in (same_hash, marked):
                if len(matches) == 1:
                    return matches[0]
        certain = [family for family in claims if not family.identity.needs_template]
        if len(certain) == 1:
            return certain[0]
        if certain:
            raise CheckpointUnknown(
                f"{path}: {architecture!r} may be {' or '.join(family.id for family in certain)} and its"
                " chat template does not tell; name the family"
            )
        what = "its chat template is not theirs" if claims else "no installed family knows it"
        raise CheckpointUnknown(
            f"{path}: architecture {architecture or 'unknown'!r}: {what}; installed families:"
            f" {', '.join(self._families) or 'none'}{self._failures()}"
        )

    def _collect(self) -> None:
        hashes: dict[str, str] = {}
        for name, plugin in self.manager.list_name_plugin():
            if plugin is None or name not in self._found:
                continue
            info = self._found[name]
            try:
                brought = _families_of(self.manager, plugin)
            except (Exception, SystemExit) as error:
                self.manager.unregister(plugin)
                self._found[name] = _failed(info, error)
                continue
            for family in brought:
                self._claim(family, info, hashes)
            hooks = tuple(sorted(caller.name for caller in self.manager.get_hookcallers(plugin) or ()))
            ids = tuple(family.id for family in brought)
            self._found[name] = PluginInfo(
                info.name, info.distribution, info.version, info.builtin, ids, hooks
            )

    def _claim(self, family: Family, info: PluginInfo, hashes: dict[str, str]) -> None:
        if family.id in self._families:
            other = self._owner[family.id]
            raise DuplicateClaim(
                f"family {family.id!r} is claimed by {other} and by {info.distribution}; disable one with"
                f" --disable-plugin or {LOAD_PLUGINS}"
            )
        for digest in family.identity.template_hashes:
            if digest in hashes:
                first = hashes[digest]
                raise DuplicateClaim(
                    f"chat template {digest[:12]}… is claimed by {first} ({self._owner[first]}) and by"
                    f" {family.id} ({info.distribution}); disable one with --disable-plugin or {LOAD_PLUGINS}"
                )
            hashes[digest] = family.id
        self._families[family.id] = family
        self._owner[family.id] = info.distribution

    def _failures(self) -> str:
        failed = [
            info.name if info.builtin else info.distribution
            for info in self._found.values()
            if info.error is not None
        ]
        return f"; failed to load: {', '.join(failed)} (see `colibri plugins`)" if failed else ""


def load(plugins: Iterable[Any] | None = None, *, disabled: Iterable[str] = ()) -> Registry:
    """Load the built-in families and the installed plugins.

    `plugins` None loads every installed plugin, or those that COLIBRI_LOAD_PLUGINS names. Otherwise only
    the given ones are loaded: strings are distributions, anything else is a plugin object (a module or
    an instance with hook implementations). `disabled` names distributions or plugins to leave out.

    Raises:
        PluginError: a plugin that was asked for is missing or fails to load.
        DuplicateClaim: two plugins claim one family id or one chat template.
    """
    families = Registry(*find_plugins(plugins, disabled=disabled))
    if plugins is not None or LOAD_PLUGINS in os.environ:
        for info in families.plugins():
            if info.error is not None and not info.builtin:
                raise PluginError(f"plugin {info.distribution} failed to load: {info.error}")
    return families


def find_plugins(
    plugins: Iterable[Any] | None = None, *, disabled: Iterable[str] = ()
) -> tuple[pluggy.PluginManager, list[PluginInfo]]:
    """Import and register plugins without asking them for their families; arguments as for `load`."""
    manager = pluggy.PluginManager("colibri")
    manager.add_hookspecs(hookspecs)
    blocked = {_normal(name) for name in ([disabled] if isinstance(disabled, str) else disabled)}
    found = list(_register_builtins(manager, blocked))
    if plugins is None and LOAD_PLUGINS in os.environ:
        plugins = [name.strip() for name in os.environ[LOAD_PLUGINS].split(",") if name.strip()]
    wanted: set[str] | None = None
    if plugins is not None:
        plugins = [plugins] if isinstance(plugins, str) else list(plugins)
        wanted = {_normal(plugin) for plugin in plugins if isinstance(plugin, str)}
        objects = [plugin for plugin in plugins if not isinstance(plugin, str)]
        found += [_register_object(manager, plugin) for plugin in objects]
    found += _register_entry_points(manager, wanted, blocked)
    return manager, found


def _register_builtins(manager: pluggy.PluginManager, blocked: set[str]) -> Iterator[PluginInfo]:
    for module in pkgutil.iter_modules(builtin_families.__path__):
        if not module.ispkg or _normal(module.name) in blocked:
            continue
        name = f"colibri.families.{module.name}"
        manager.register(import_module(name), name=name)
        yield PluginInfo(name, "colibri-llm", _version("colibri-llm"), builtin=True)


def _register_object(manager: pluggy.PluginManager, plugin: Any) -> PluginInfo:
    label = getattr(plugin, "__name__", None) or type(plugin).__name__
    if manager.is_registered(plugin):
        raise PluginError(f"plugin {label} is registered twice; pass it once")
    try:
        name = manager.register(plugin) or label
    except (ValueError, pluggy.PluginValidationError) as error:
        reason = " ".join(str(error).split())
        raise PluginError(f"plugin {label} cannot be registered: {reason}") from error
    _check_hooks(manager, plugin)
    return PluginInfo(name, label, "", builtin=False)


def _register_entry_points(
    manager: pluggy.PluginManager, wanted: set[str] | None, blocked: set[str]
) -> Iterator[PluginInfo]:
    missing = set(wanted or ())
    taken: set[str] = set()
    for distribution in _bringing_plugins():
        own_name = distribution.metadata["Name"] or ""
        for entry in _entries(distribution):
            names = {_normal(own_name), _normal(entry.name)}
            if names & blocked:
                missing -= names
                continue
            if wanted is not None and not names & wanted:
                continue
            missing -= names
            name = entry.name if entry.name not in taken else f"{own_name}:{entry.name}"
            taken.add(name)
            info = PluginInfo(name, own_name, distribution.version, builtin=False)
            try:
                plugin = entry.load()
                manager.register(plugin, name=name)
                _check_hooks(manager, plugin)
            except (Exception, SystemExit) as error:
                if wanted is not None:
                    raise PluginError(f"plugin {own_name} failed to load: {_describe(error)}") from error
                if manager.has_plugin(name):
                    manager.unregister(name=name)
                info = _failed(info, error)
            yield info
    if missing:
        raise PluginError(
            f"plugin {', '.join(sorted(missing))} is not installed; install it or drop it from {LOAD_PLUGINS}"
        )


def _bringing_plugins() -> list[metadata.Distribution]:
    """The distributions with entry points of ours by name; of those found twice, the first on the path."""
    found: dict[str, metadata.Distribution] = {}
    for distribution in metadata.distributions():
        # Entry points first: reading the metadata of every distribution would take most of the start.
        if _entries(distribution):
            found.setdefault(_normal(distribution.metadata["Name"] or ""), distribution)
    return [found[name] for name in sorted(found)]


def _entries(distribution: metadata.Distribution) -> list[metadata.EntryPoint]:
    return [entry for entry in distribution.entry_points if entry.group == ENTRY_POINT_GROUP]


def _check_hooks(manager: pluggy.PluginManager, plugin: Any) -> None:
    """Refuse a hook implementation that no hook asks for: a misspelt name would be silently unused."""
    known = {name for name in vars(hookspecs) if name.startswith("colibri_")}
    for caller in manager.get_hookcallers(plugin) or ():
        if caller.name not in known:
            raise PluginError(f"hook {caller.name!r} is not known; known hooks: {', '.join(sorted(known))}")


def _families_of(manager: pluggy.PluginManager, plugin: Any) -> list[Family]:
    others = [other for other in manager.get_plugins() if other is not plugin]
    answers = manager.subset_hook_caller("colibri_families", others)()
    brought = [family for answer in answers for family in answer]
    for family in brought:
        if not isinstance(family, Family):
            raise PluginError(f"colibri_families returned {type(family).__name__}; it must return families")
    return brought


def _has_marks(identity: Identity, template: str) -> bool:
    return (
        bool(identity.template_marks)
        and all(mark in template for mark in identity.template_marks)
        and not any(mark in template for mark in identity.template_absent)
    )


def _failed(info: PluginInfo, error: BaseException) -> PluginInfo:
    return PluginInfo(info.name, info.distribution, info.version, info.builtin, error=_describe(error))


def _describe(error: BaseException) -> str:
    return error.message if isinstance(error, ColibriError) else f"{type(error).__name__}: {error}"


def _normal(name: str) -> str:
    return name.lower().replace("_", "-")


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
