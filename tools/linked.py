"""What the installed programs of a build are linked with, as Debian packages.

Static parts are read from the linker's map: the last link is repeated into a scratch file, so that start files
and what the compiler adds count too.  Shared libraries are NEEDED and its closure.  What a deployment gets besides is
what the packages of those depend on.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KINDS = ("static", "dynamic", "transitive", "installed")


def output(command, cwd=None, codes=(0,)):
    made = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    if made.returncode not in codes:
        sys.exit(f"{' '.join(command)[:200]}: {made.stderr.strip()[-2000:]}")
    return made.stdout


def installed_targets(build):
    """Our own objects that `make install` installs: name -> (target, file)."""
    with open(os.path.join(build, "meson-info/intro-targets.json"), encoding="utf-8") as f:
        targets = json.load(f)
    found = {}
    for t in targets:
        if t.get("installed") and t["type"] in ("executable", "shared library", "shared module", "static library"):
            path = t["filename"][0]
            found[re.sub(r"(\.so)\.[0-9.]+$", r"\1", os.path.basename(path))] = (os.path.relpath(path, os.path.abspath(build)), path)
    return found


def static_parts(build, target, scratch):
    """Archives and start files outside our tree that have a part in target."""
    lines = [x for x in output(["ninja", "-C", build, "-t", "commands", "-s", target]).splitlines() if x and not x.startswith("ninja:")]
    if len(lines) != 1 or f" -o {target} " not in lines[0]:
        sys.exit(f"{target}: no command that links it")
    made = os.path.join(scratch, "linked")
    command = lines[0].replace(f" -o {target} ", f" -o {made} -Wl,-Map={made}.map ", 1)
    output(["/bin/sh", "-c", command], cwd=build)
    with open(made + ".map", encoding="utf-8", errors="replace") as f:
        text = f.read()
    parts = set(re.findall(r"^LOAD (/\S+\.o)$", text, re.M))
    parts |= set(re.findall(r"0x0*[1-9a-f][0-9a-f]*\s+(/\S+?\.[ao])(?:\([^)]*\))?$", text.split("Linker script and memory map")[-1], re.M))
    if not parts:
        sys.exit(f"{target}: the linker's map has no start files: its format is another one")
    return {os.path.realpath(p) for p in parts if not os.path.realpath(p).startswith(TOP + os.sep)}


def needed(path):
    return re.findall(r"\(NEEDED\).*\[([^]]+)\]", output(["readelf", "-d", path]))


def resolve(soname, folders):
    for folder in folders:
        path = os.path.join(folder, soname)
        if os.path.exists(path):
            return os.path.realpath(path)
    sys.exit(f"{soname} is in none of {' '.join(folders)}")


def closure(path, folders, own):
    """Shared libraries that path names, and those that they name."""
    direct = {resolve(n, folders) for n in needed(path) if n.split(".so")[0] + ".so" not in own}
    seen, todo = set(direct), list(direct)
    while todo:
        for n in needed(todo.pop()):
            lib = resolve(n, folders)
            if lib not in seen:
                seen.add(lib)
                todo.append(lib)
    return direct, seen - direct


def owners(paths):
    """path -> Debian package.  With a merged /usr, packages know files by either name."""
    names = {}
    for p in paths:
        names[p] = p
        if p.startswith("/usr/"):
            names[p[4:]] = p
    found = {}
    for line in output(["dpkg-query", "-S", *sorted(names)], codes=(0, 1)).splitlines() if names else []:
        package, sep, path = line.partition(": ")
        if sep and path in names and not package.startswith("diversion"):
            found[names[path]] = package.split(",")[0].split(":")[0]
    for p in paths:
        if p not in found:
            sys.exit(f"{p} belongs to no Debian package: record where it comes from")
    return found


def package_facts(packages):
    """package -> (source, version of the source, what it depends on, priority)"""
    form = "${Package}\t${source:Package}\t${source:Version}\t${Depends}, ${Pre-Depends}\t${Priority}\n"
    facts = {}
    for line in output(["dpkg-query", "-W", "-f", form, *packages], codes=(0, 1)).splitlines() if packages else []:
        name, source, version, depends, priority = line.split("\t")
        wanted = [[re.sub(r"[:( ].*", "", x.strip()) for x in d.split("|")] for d in depends.split(",") if d.strip()]
        facts[name] = (source, version, wanted, priority)
    return facts


def discover(build):
    """package -> {"source", "version", kind: programs or, of what is only installed, who depends on it}"""
    own = installed_targets(build)
    triplet = output(["gcc", "-print-multiarch"]).strip()
    folders = [f"/lib/{triplet}", f"/usr/lib/{triplet}", "/lib", "/usr/lib"]
    uses = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, (target, path) in sorted(own.items()):
            direct, further = closure(path, folders, own)
            kinds = (("static", static_parts(build, target, scratch)), ("dynamic", direct), ("transitive", further))
            owner = owners({p for _, paths in kinds for p in paths})
            known = set()
            for kind, paths in kinds:
                for package in {owner[p] for p in paths}:
                    if kind != "transitive" or package not in known:
                        uses.setdefault(package, {}).setdefault(kind, set()).add(name)
                    known.add(package)
    add_dependencies(uses)
    facts = package_facts(sorted(uses))
    return set(own), {p: {"source": facts[p][0], "version": facts[p][1], **{k: sorted(v) for k, v in u.items()}} for p, u in uses.items()}


def add_dependencies(uses):
    """What a deployment gets because a library's package depends on it, without being linked."""
    todo = [p for p, u in uses.items() if set(u) != {"static"}]
    while todo:
        facts = package_facts(todo)
        wanted = {(alternative, p) for p in todo for choice in facts[p][2] for alternative in choice}
        there = package_facts(sorted({w for w, _ in wanted}))
        todo = []
        for name, by in sorted(wanted):
            # Debian's own base is there in any case.
            if name not in there or there[name][3] == "required" or set(uses.get(name, {})) - {"installed", "static"}:
                continue
            if "installed" not in uses.setdefault(name, {}):
                todo.append(name)
            uses[name].setdefault("installed", set()).add(by)
