"""glob, grep and edit of a file worker.  usage: test_files_search.py HOST [name ...]"""

import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time

from filesproto import *

HOST = sys.argv[1]
TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


class Search(Tree):
    def glob(self, pattern, *flags, root=b"", **kw):
        r = self.worker.do("glob", self.path(root).rstrip(b"/"), *flags, pattern=pattern, **kw)
        assert r.end.code == "ok", r.end
        assert r.end.count == len(r.entries)
        self.end = r.end
        return [e.name for e in r.entries]

    def grep(self, pattern, *flags, root=b"", **kw):
        """[(name, line, column, length)]"""
        r = self.worker.do("grep", self.path(root).rstrip(b"/"), *flags, pattern=pattern, **kw)
        assert r.end.code == "ok", r.end
        assert r.end.count == len(r.matches)
        self.end, self.matches = r.end, r.matches
        return [(m.name, m.line, m.column, m.length) for m in r.matches]


# ---- glob ----

@test
def a_pattern_matches_what_it_says(t):
    names = ["a.c", "b.h", "A.C", "src/a.c", "src/lib/b.c", "src/lib/deep/c.c", "src2/x.c", "doc/a b.txt", "doc/[x].md", "doc/x.md",
             "doc/{y}.md", "doc/*.md", "ä.txt", "ö.text", "ß.text", b"caf\xe9.txt", "-dash.c", "col:on.c", "new\nline.c", "doc/back\\slash"]
    t.files(*names)
    every = sorted(os.fsencode(n) for n in names)
    cases = [
        ("*.c", lambda n: n.endswith(b".c")),
        ("*", lambda n: True),
        ("**", lambda n: True),
        ("/*.c", lambda n: b"/" not in n and n.endswith(b".c")),
        ("./*.c", lambda n: b"/" not in n and n.endswith(b".c")),
        ("src/*.c", lambda n: n == b"src/a.c"),
        ("src/**/*.c", lambda n: n.startswith(b"src/") and n.endswith(b".c")),
        ("src/**", lambda n: n.startswith(b"src/")),
        ("**/lib/*.c", lambda n: n == b"src/lib/b.c"),
        ("**/lib/**", lambda n: n.startswith(b"src/lib/")),
        ("src/*/*.c", lambda n: n == b"src/lib/b.c"),
        ("src**", lambda n: False),
        ("src**/*.c", lambda n: n in (b"src/a.c", b"src2/x.c")),
        ("?.c", lambda n: re.search(rb"(^|/).\.c$", n)),
        ("[ab].[ch]", lambda n: re.search(rb"(^|/)[ab]\.[ch]$", n)),
        ("[!a].c", lambda n: re.search(rb"(^|/)[^a/]\.c$", n)),
        ("[^a].c", lambda n: re.search(rb"(^|/)[^a/]\.c$", n)),
        ("[[:upper:]].*", lambda n: n == b"A.C"),
        ("[a-b].c", lambda n: n in (b"a.c", b"src/a.c", b"src/lib/b.c")),
        ("*.{c,h}", lambda n: n[-2:] in (b".c", b".h")),
        ("*.{txt,m{d,x}}", lambda n: n.endswith((b".txt", b".md"))),
        ("{src,doc}/{a,x,a*}.{c,md,txt}", lambda n: n in (b"src/a.c", b"doc/x.md", b"doc/a b.txt")),
        ("{src/lib,doc}/*", lambda n: n.startswith(b"doc/") or n == b"src/lib/b.c"),
        ("{a,}.c", lambda n: n in (b"a.c", b"src/a.c")),
        ("\\[x\\].md", lambda n: n == b"doc/[x].md"),
        ("[[]x].md", lambda n: n == b"doc/[x].md"),
        ("\\{y\\}.md", lambda n: n == b"doc/{y}.md"),
        ("\\*.md", lambda n: n == b"doc/*.md"),
        ("back\\\\slash", lambda n: n == b"doc/back\\slash"),
        ("?.txt", lambda n: n == "ä.txt".encode()),
        ("caf?.txt", lambda n: n == b"caf\xe9.txt"),
        ("[ä-ö].t*xt", lambda n: n in ("ä.txt".encode(), "ö.text".encode())),
        ("ä.t*xt", lambda n: n == "ä.txt".encode()),
        (b"caf\xe9*", lambda n: n == b"caf\xe9.txt"),
        ("-*", lambda n: n == b"-dash.c"),
        ("*:*", lambda n: n == b"col:on.c"),
        ("new\nline.c", lambda n: n == b"new\nline.c"),
        ("a.c/", lambda n: False),
        ("nothing", lambda n: False),
    ]
    for pattern, want in cases:
        assert t.glob(pattern) == [n for n in every if want(n)], (pattern, t.glob(pattern))
    assert t.glob("a.c", "no_case") == [b"A.C", b"a.c", b"src/a.c"]
    assert t.glob("[A].C", "no_case") == [b"A.C", b"a.c", b"src/a.c"]
    assert t.glob("[a-b].c", "no_case") == [b"A.C", b"a.c", b"src/a.c", b"src/lib/b.c"]
    assert t.glob("Ä.TXT", "no_case") == ["ä.txt".encode()]


@test
def a_wrong_pattern_is_named(t):
    for pattern in ("[a", "{a,b", "a\\", "[z-a]", "", "/", "[[:nope:]]", "{" * 33 + "a" + "}" * 33, "{a,{b,c}"):
        t.fails("glob", t.dir, "invalid", pattern=pattern)
        if pattern:
            t.fails("grep", t.dir, "invalid", pattern="x", include=pattern)
    t.fails("grep", t.dir, "invalid", pattern="x", include="src/")
    t.fails("glob", t.dir + b"/missing", "not_found", pattern="*")
    t.fails("glob", t.file("plain"), "not_directory", pattern="*")


@test
def hidden_names_only_when_asked_for(t):
    t.files("a", ".hidden", "d/.x/y", ".git/config", ".github/w", ".root/.in/f", ".root/g")
    assert t.glob("*") == [b"a"]
    assert t.glob(".*") == []
    assert t.glob("*", "hidden") == [b".github/w", b".hidden", b".root/.in/f", b".root/g", b"a", b"d/.x/y"]
    assert t.glob("*", "hidden", "no_ignore") == [b".git/config", b".github/w", b".hidden", b".root/.in/f", b".root/g", b"a", b"d/.x/y"]
    assert t.glob("*", root=".root") == [b"g"]
    assert t.glob("*", root=".git") == [b"config"]


@test
def results_are_sorted_by_bytes_and_bounded(t):
    names = ["a", "a.txt", "a/b", "a-c", "a0", "b/c", "b.d/x", "b0", "Z", "ä", b"\xff"]
    names.remove("a")
    t.files(*names)
    want = sorted(os.fsencode(n) for n in names)
    assert t.glob("*") == want and not t.end.truncated
    with_dirs = sorted(want + [b"a", b"b", b"b.d"])
    assert t.glob("*", "dirs_too") == with_dirs
    assert t.glob("b*/", "dirs_too") == [b"b", b"b.d"]
    for n in range(1, len(with_dirs) + 2):
        assert t.glob("*", "dirs_too", max_entries=n) == with_dirs[:n]
        assert t.end.truncated == (n < len(with_dirs)), n
    assert t.glob("*", max_depth=1) == [n for n in want if b"/" not in n] and t.end.truncated
    assert t.glob("*", max_depth=2) == want and not t.end.truncated


@test
def links_are_found_but_not_followed(t):
    t.files("d/f", "e/g")
    os.symlink("f", t.path("d/to-file"))
    os.symlink("../e", t.path("d/to-dir"))
    os.symlink("..", t.path("d/loop"))
    os.symlink("nowhere", t.path("d/dangling"))
    os.mkfifo(t.path("d/fifo"))
    assert t.glob("*") == [b"d/f", b"d/to-file", b"e/g"]
    r = t.worker.do("glob", t.dir, "dirs_too", pattern="d/*")
    assert {e.name: (e.type, e.link, e.target) for e in r.entries} == {
        b"d/f": (REGULAR, 0, b""), b"d/fifo": (OTHER, 0, b""), b"d/to-file": (REGULAR, 1, b"f"), b"d/to-dir": (DIRECTORY, 1, b"../e"),
        b"d/loop": (DIRECTORY, 1, b".."), b"d/dangling": (DANGLING, 1, b"nowhere")}
    assert t.glob("*", "nofollow") == [b"d/f", b"e/g"]


IGNORES = [
    # (.gitignore files, names that are ignored, names that are not)
    ({"": "*.o\n"}, "a.o d/b.o", "a.c o"),
    ({"": "/a\n"}, "a", "d/a"),
    ({"": "d/a\n"}, "d/a", "a x/d/a"),
    ({"": "build/\n"}, "build/x d/build/y", "builder e/build"),
    ({"": "a*\n!ab\n"}, "a ac d/ad", "ab d/ab"),
    ({"": "!ab\na*\n"}, "a ab", "b"),
    ({"": "d/\n!d/keep\n"}, "d/keep d/x", "y"),
    ({"": "d/*\n!d/keep\n"}, "d/x d/e/y", "d/keep"),
    ({"": "*.o\n", "d": "!keep.o\n"}, "a.o d/b.o", "d/keep.o d/e/keep.o"),
    ({"": "!x.o\n", "d": "*.o\n", "d/e": "!y.o\n"}, "d/a.o d/e/b.o", "x.o d/e/y.o d/e/f/y.o"),
    ({"d": "/a\n"}, "d/a", "a d/e/a"),
    ({"": "**/x\n"}, "x d/x d/e/x", "xx"),
    ({"": "d/**\n"}, "d/a d/e/b", "a/d e"),
    ({"": "a/**/b\n"}, "a/b a/x/b a/x/y/b", "b x/a/b"),
    ({"": "# a comment\n\\#x\n\\!y\n"}, "#x !y", "a"),
    ({"": "trail   \nkept\\ \n"}, "trail|kept ", "kept"),
    ({"": "crlf\r\nnext\r\n"}, "crlf next", "a"),
    ({"": "\ufeffbom\n"}, "bom", "a"),
    ({"": "[a\n{x,y}\n\n/\n!\n\\\n"}, "{x,y}", "x y [a"),
    ({"": "no-newline"}, "no-newline", "a"),
    ({"": "[a-c]?\n"}, "ax d/b1", "dx a"),
    ({"": "*\n!*.c\n"}, "a d/b.c", "x.c"),
    ({"": "*\n!*/\n!*.c\n"}, "a d/b", "x.c d/b.c"),
]


@test
def ignore_rules_are_gits(t):
    git = shutil.which("git")
    for i, (rules, ignored, kept) in enumerate(IGNORES):
        base = "case%d" % i
        split = lambda s: s.split("|") if "|" in s else s.split(" ")
        ignored, kept = split(ignored), split(kept)
        for place, text in rules.items():
            t.file(os.path.join(base, place, ".gitignore"), text.encode())
        t.files(*(os.path.join(base, n) for n in ignored + kept))
        got = t.glob("*", root=base)
        assert got == sorted(os.fsencode(n) for n in kept), (rules, got)
        assert t.glob("*", "no_ignore", root=base) == sorted(os.fsencode(n) for n in kept + ignored), rules
        assert sorted({m[0] for m in t.grep("^", root=base)}) == [], "empty files have no lines"
        if git:
            # git itself, on the same tree, as the judge of the table.
            top = t.path(base)
            subprocess.run([git, "init", "-q", top], check=True, stdout=subprocess.DEVNULL)
            out = subprocess.run([git, "-c", "safe.directory=*", "-C", top, "ls-files", "-z", "--others", "--exclude-standard"],
                                 check=True, stdout=subprocess.PIPE).stdout
            names = sorted(n for n in out.split(b"\0") if n and b".gitignore" not in n)
            assert names == got, (rules, names, got)


@test
def what_is_hidden_or_ignored_is_not_searched(t):
    t.file(".gitignore", b"build/\n*.o\n!keep.o\n")
    t.files("a", "a.o", "keep.o", "build/b", ".hidden/c", ".d", "e/build/f", "e/.git/g", data=b"needle\n")
    files = lambda *flags: [m[0] for m in t.grep("needle", *flags)]
    assert files() == [b"a", b"keep.o"]
    assert files("hidden") == [b".d", b".hidden/c", b"a", b"keep.o"]
    assert files("no_ignore") == [b"a", b"a.o", b"build/b", b"e/build/f", b"keep.o"]
    assert len(files("hidden", "no_ignore")) == 8
    assert [m[0] for m in t.grep("needle", root="build")] == [b"b"]
    assert [m[0] for m in t.grep("needle", root="a.o")] == [b""]


@test
def rules_above_the_root_count_within_a_repository(t):
    t.file(".gitignore", b"*.log\n/repo/src/top\n")
    t.file("repo/.gitignore", b"*.o\n/src/gen\nsrc/deep/x\n")
    t.file("repo/src/.gitignore", b"!keep.o\n")
    t.files("repo/src/a.o", "repo/src/keep.o", "repo/src/gen/f", "repo/src/deep/x", "repo/src/deep/y.log", "repo/src/top", "repo/src/c")
    t.files("repo/src/deep/gen/f")
    every = [b"a.o", b"c", b"deep/gen/f", b"deep/x", b"deep/y.log", b"gen/f", b"keep.o", b"top"]
    assert t.glob("*", root="repo/src") == every, "no repository: only what is below"
    os.mkdir(t.path("repo/.git"))
    assert t.glob("*", root="repo/src") == [b"c", b"deep/gen/f", b"deep/y.log", b"keep.o", b"top"], t.glob("*", root="repo/src")
    assert t.glob("*", root="repo/src/gen") == [b"f"], "an ignored root is searched"
    assert t.glob("*", "no_ignore", root="repo/src") == every


# ---- grep ----

@test
def a_match_has_its_place(t):
    t.file("a.txt", b"one\ntwo three two\n\nlast two")
    t.file("b/c.txt", b"two\r\ntwo\r\n")
    assert t.grep("two") == [(b"a.txt", 2, 1, 3), (b"a.txt", 2, 11, 3), (b"a.txt", 4, 6, 3), (b"b/c.txt", 1, 1, 3), (b"b/c.txt", 2, 1, 3)]
    assert [m.text for m in t.matches] == [b"two three two", b"two three two", b"last two", b"two", b"two"]
    same = t.grep("two")
    assert t.grep("t[w]o") == same and t.grep("two", "fixed") == same and t.grep("TWO", "no_case") == same
    assert t.grep("TWO", "no_case", "fixed") == same and t.grep("two", include="*.txt") == same
    assert t.grep("two$") == [(b"a.txt", 2, 11, 3), (b"a.txt", 4, 6, 3), (b"b/c.txt", 1, 1, 3), (b"b/c.txt", 2, 1, 3)]
    assert t.grep("^two") == [(b"a.txt", 2, 1, 3), (b"b/c.txt", 1, 1, 3), (b"b/c.txt", 2, 1, 3)]
    assert t.grep("o.*o") == [(b"a.txt", 2, 3, 11)]
    assert t.grep("two\\r$") == [(b"b/c.txt", 1, 1, 4), (b"b/c.txt", 2, 1, 4)]
    assert t.grep("^$", include="a.*") == [(b"a.txt", 3, 1, 0)]
    assert t.grep("") == t.grep("^") and len(t.grep("")) == 6
    assert t.grep("x*", include="a.txt") == [(b"a.txt", n, 1, 0) for n in (1, 2, 3, 4)]
    assert t.grep("o*", include="a.txt")[:3] == [(b"a.txt", 1, 1, 1), (b"a.txt", 2, 1, 0), (b"a.txt", 2, 3, 1)]
    assert t.grep("(?<=t)wo", include="a.txt") == [(b"a.txt", 2, 2, 2), (b"a.txt", 2, 12, 2), (b"a.txt", 4, 7, 2)]
    assert t.grep("two", root="a.txt") == [(b"", 2, 1, 3), (b"", 2, 11, 3), (b"", 4, 6, 3)]
    assert t.grep("two", include="b/*") == [(b"b/c.txt", 1, 1, 3), (b"b/c.txt", 2, 1, 3)]
    assert t.grep("two", include="*.{c,h}") == []
    assert t.grep("one\ntwo") == [] and t.grep("one\\ntwo") == [] and t.grep("one\\s+two") == [], "one line at a time"
    for n in range(1, 7):
        assert t.grep("two", max_entries=n) == same[:n] and t.end.truncated == (n < 5)


@test
def odd_names_and_patterns_are_searched_as_they_are(t):
    t.file("a:1:b", b"-x needle\n")
    t.file("new\nline", b"needle\n")
    t.file(b"caf\xe9", b"needle -- \xe9 needle\n")
    t.file("-r", b"--needle\n")
    assert t.grep("needle") == [(b"-r", 1, 3, 6), (b"a:1:b", 1, 4, 6), (b"caf\xe9", 1, 1, 6), (b"caf\xe9", 1, 13, 6), (b"new\nline", 1, 1, 6)]
    assert t.grep("-x") == [(b"a:1:b", 1, 1, 2)] and t.grep("--n") == [(b"-r", 1, 1, 3)]
    assert t.grep("-+[n]") == [(b"-r", 1, 1, 3)]


@test
def bytes_that_are_no_utf8_are_no_hindrance(t):
    t.file("latin", "grün blau\n".encode("latin-1") + b"\xff\xfe blau \x80\n")
    t.file("utf", "grün blau\nGRÜN\n".encode())
    assert t.grep("blau") == [(b"latin", 1, 6, 4), (b"latin", 2, 4, 4), (b"utf", 1, 7, 4)]
    assert t.grep("b[l]au") == t.grep("blau") == t.grep("BLAU", "no_case")
    assert t.grep("gr.n") == [(b"utf", 1, 1, 5)]
    assert t.grep("grün", "no_case") == [(b"utf", 1, 1, 5), (b"utf", 2, 1, 5)]
    assert t.grep("\\bgrün\\b") == [(b"utf", 1, 1, 5)]
    assert t.grep(b"gr\xfcn", "fixed") == [(b"latin", 1, 1, 4)]
    t.fails("grep", t.dir, "invalid", pattern=b"gr\xfc.n")


@test
def binary_files_are_left_out_unless_named(t):
    t.file("bin", b"needle\0\nneedle\n")
    t.file("late", b"needle\n" + b"x" * 9000 + b"\nneedle \0 [n]eedle\n")
    t.file("text", b"needle\n")
    assert t.grep("needle") == [(b"late", 1, 1, 6), (b"late", 3, 1, 6), (b"text", 1, 1, 6)] and t.end.skipped == 1
    assert t.grep("needle", root="bin") == [(b"", 1, 1, 6), (b"", 2, 1, 6)] and t.end.skipped == 0
    assert t.grep("e\\x00$", root="bin") == [(b"", 1, 6, 2)]


@test
def a_catastrophic_pattern_is_an_error_with_its_name(t):
    t.file("x", b"fine\n" + b"a" * 40 + b"b\n")
    for pattern, limit in (("(a+)+$", "match limit"), ("(a|aa)+$", "match limit"), ("(?:a?){40}a{40}$", "match limit")):
        start = time.monotonic()
        end = t.fails("grep", t.dir, "too_large", pattern=pattern)
        assert limit in end.msg and "line 2" in end.msg and end.path == b"x", end
        assert time.monotonic() - start < 20
    t.file("x", b"ab" * 300000 + b"\n")
    end = t.fails("grep", t.dir, "too_large", pattern="^(?:a|b)*c")
    assert "depth limit" in end.msg, end
    end = t.fails("grep", t.dir, "too_large", pattern="^(?:a|b)*c" + "(d)" * 30)
    assert "heap limit" in end.msg, end
    assert t.grep("fine") == [] and t.worker.proc.poll() is None
    for pattern in ("(", "a{2", "[", "*a", "\\", "(?<n", "a" * 3000 + "("):
        if pattern != "a{2":
            assert "byte" in t.fails("grep", t.dir, "invalid", pattern=pattern).msg
    t.fails("grep", t.dir, "invalid", pattern="((((a{1,999}){1,999}){1,999}){1,999})")


@test
def a_search_ends_when_its_time_is_over(t):
    for i in range(40):
        t.file("f%d" % i, (b"a" * 17 + b"b\n") * 2000)
    start = time.monotonic()
    t.fails("grep", t.dir, "timeout", pattern="(a+)+$", timeout_ms=300)
    took = time.monotonic() - start
    assert took < 15, took


@test
def long_lines_are_cut_and_searched_in_pieces(t):
    t.file("l", b"first\n" + b"x" * 5000 + b"needle" + b"y" * 5000 + b"\nneedle\n")
    for pattern in ("needle", "n[e]edle"):
        assert t.grep(pattern) == [(b"l", 2, 5001, 6), (b"l", 3, 1, 6)]
        assert (t.matches[0].text, t.matches[0].cut, t.matches[1].cut) == (b"x" * 2048, 1, 0)
    t.file("l", b"a" * 2048 + b"\n" + b"a" * 2049 + b"\n" + b"a" * 2048 + b"\r\n")
    assert len(t.grep("^a")) == 3 and [(len(m.text), m.cut) for m in t.matches] == [(2048, 0), (2048, 1), (2048, 0)]
    # A line of 3 MiB between others, in three pieces of 1 MiB; two bytes a character.
    mib = 1 << 20
    long = bytearray("ä".encode() * (3 * mib // 2))
    for at in (10, mib + 100, 3 * mib - 10):
        long[at:at + 6] = b"needle"
    t.file("l", b"head needle\n" + bytes(long) + b"\ntail needle\nno end")
    want = [(b"l", 1, 6, 6), (b"l", 2, 11, 6), (b"l", 2, mib + 101, 6), (b"l", 2, 3 * mib - 9, 6), (b"l", 3, 6, 6)]
    assert t.grep("needle") == want and t.grep("n[e]edle") == want
    assert [(m.text[:10], m.cut) for m in t.matches][1:4] == [(bytes(long[:10]), 1)] * 3
    assert t.grep("^(head|tail|ä)") == [(b"l", 1, 1, 4), (b"l", 2, 1, 2), (b"l", 3, 1, 4)]
    assert [x[1:3] for x in t.grep("(needle|ä|end)$")] == [(1, 6), (2, 3 * mib - 1), (3, 6), (4, 4)]


@test
def what_can_not_be_read_is_counted(t):
    t.files("a", "b/c", "d/e", data=b"needle\n")
    os.chmod(t.path("a"), 0)
    os.chmod(t.path("b"), 0)
    os.mkfifo(t.path("fifo"))
    s = socket.socket(socket.AF_UNIX)
    s.bind(os.fsdecode(t.path("sock")))
    assert t.grep("needle") == [(b"d/e", 1, 1, 6)] and t.end.skipped == 2
    assert t.glob("*") == [b"a", b"d/e"] and t.end.skipped == 1
    s.close()
    t.fails("grep", t.path("missing"), "not_found", pattern="x")
    t.fails("grep", t.path("a"), "denied", pattern="x")
    t.fails("grep", t.path("b"), "denied", pattern="x")
    t.fails("grep", t.path("fifo"), "not_regular", pattern="x")
    t.fails("grep", t.path("sock"), "not_regular", pattern="x")
    t.fails("grep", "/dev/null", "not_regular", pattern="x")
    t.fails("grep", "relative", "invalid", pattern="x")


@test
def a_deep_tree_takes_few_descriptors(t):
    # 1,000 directories in one another, each with a file before and one behind the way down.
    depth = 1000
    fd = os.open(t.dir, os.O_RDONLY)
    for i in range(depth):
        for name in ("a", "z"):
            f = os.open(name, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd)
            os.write(f, b"needle\n")
            os.close(f)
        os.mkdir("m", dir_fd=fd)
        below = os.open("m", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    want = [b"m/" * i + b"a" for i in range(depth)] + [b"m/" * i + b"z" for i in reversed(range(depth))]
    seen = [0]
    stop = threading.Event()

    def watch():
        while not stop.is_set():
            try:
                seen[0] = max(seen[0], len(os.listdir("/proc/%d/fd" % t.worker.proc.pid)))
            except OSError:
                pass
    watcher = threading.Thread(target=watch)
    watcher.start()
    names = t.glob("*")
    hits = t.grep("needle")
    stop.set()
    watcher.join()
    assert sorted(names) == names == sorted(want) and [h[0] for h in hits] == names and t.end.skipped == 0
    assert seen[0] < 32, seen


@test
def paths_that_are_too_long_are_counted(t):
    fd = os.open(t.dir, os.O_RDONLY)
    name = "n" * 255
    for i in range(20):
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd))
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    names = t.glob("f")
    assert len(names) == 16 and max(map(len, names)) == 15 * 256 + 1 and t.end.skipped == 2, (len(names), t.end)


@test
def renames_meanwhile_do_no_harm(t):
    for i in range(30):
        for j in range(20):
            t.file("d%d/e/f/g%d" % (i, j), b"needle\n")
    stop = threading.Event()

    def rename():
        while not stop.is_set():
            for i in range(30):
                try:
                    os.rename(t.path("d%d" % i), t.path("x%d" % i))
                    os.rename(t.path("x%d/e" % i), t.path("x%d/h" % i))
                    os.rename(t.path("x%d/h" % i), t.path("x%d/e" % i))
                    os.rename(t.path("x%d" % i), t.path("d%d" % i))
                except OSError:
                    pass
    r = threading.Thread(target=rename)
    r.start()
    try:
        for _ in range(20):
            for name in t.glob("g*"):
                assert re.fullmatch(rb"[dx]\d+/[eh]/f/g\d+", name), name
            for hit in t.grep("needle"):
                assert re.fullmatch(rb"[dx]\d+/[eh]/f/g\d+", hit[0]) and hit[1:] == (1, 1, 6), hit
    finally:
        stop.set()
        r.join()
    assert len(t.glob("g*")) == 600


@test
def a_directory_that_moved_is_not_taken_for_another(t):
    # Below what is held, the way back is `..`: who was moved meanwhile comes out elsewhere.
    deep = "d/" * 20
    t.files(*(deep + "one/m/f%03d" % i for i in range(300)), data=b"x\n")
    for name in ("one", "two"):
        t.file(deep + name + "/z", name.encode() + b"\n")
    a, b = t.path(deep + "one/m"), t.path(deep + "two/m")
    stop = threading.Event()

    def move():
        while not stop.is_set():
            os.rename(a, b)
            os.rename(b, a)
    m = threading.Thread(target=move)
    m.start()
    try:
        for _ in range(60):
            for name, *_ in t.grep("one"):
                assert name.endswith(b"one/z"), name
            for name, *_ in t.grep("two"):
                assert name.endswith(b"two/z"), name
    finally:
        stop.set()
        m.join()


@test
def a_pattern_says_where_nothing_has_to_be_looked_for(t):
    for i in range(50):
        t.files("other%d/x/a.c" % i)
    t.files("src/a.c", "src/b/c.c")
    os.chmod(t.path("other7"), 0)
    assert t.glob("src/**/*.c") == [b"src/a.c", b"src/b/c.c"] and t.end.skipped == 0, "other7 isn't even opened"
    assert len(t.glob("*.c")) == 51 and t.end.skipped == 1


@test
def an_archive_is_searched_below_its_root_only(t):
    # The worker's own directory is the root, paths are relative, nothing is a link.
    t.files("a.c", "d/b.c", "d/.gitignore", data=b"needle\n")
    os.symlink("d", t.path("to-dir"))
    os.symlink("a.c", t.path("to-file"))
    glob = lambda path, *flags: [e.name for e in t.worker.do("glob", path, "relative", *flags, pattern="*").entries]
    assert glob("") == [b"a.c", b"d/b.c"] and glob("d") == [b"b.c"] and glob("to-dir") == []
    assert glob("", "dirs_too") == [b"a.c", b"d", b"d/b.c"]
    r = t.worker.do("grep", "", "relative", pattern="needle")
    assert [m.name for m in r.matches] == [b"a.c", b"d/b.c"]
    assert [m.name for m in t.worker.do("grep", "d/b.c", "relative", pattern="needle").matches] == [b""]
    for op, path in (("grep", "to-file"), ("grep", "to-dir/b.c"), ("grep", "../x"), ("glob", "to-dir"), ("glob", "..")):
        r = t.worker.do(op, path, "relative", pattern="needle")
        assert r.end.code != "ok" and not r.matches and not r.entries, (op, path, r.end)


@test
def views_of_the_kernel_are_no_files_unless_named(t):
    if not os.path.exists("/proc/version"):
        print("    no /proc here")
        return
    r = t.worker.do("glob", "/", pattern="proc/version")
    assert r.end.code == "ok" and r.entries == [], r.end
    r = t.worker.do("glob", "/proc", pattern="version", max_depth=1)
    assert [e.name for e in r.entries] == [b"version"]
    r = t.worker.do("grep", "/proc/version", pattern="Linux")
    assert r.end.code == "ok" and r.matches[0].column == 1, r.end


@test
def a_large_directory_is_no_trouble(t):
    os.mkdir(t.path("d"))
    for i in range(20000):
        os.close(os.open(t.path("d/f%05d" % i), os.O_CREAT | os.O_WRONLY, 0o644))
    start = time.monotonic()
    names = t.glob("d/*")
    took = time.monotonic() - start
    assert names == [b"d/f%05d" % i for i in range(20000)]
    assert t.glob("*9999") == [b"d/f09999", b"d/f19999"]
    print("    20,000 names in %.2f s" % took)


# ---- edit ----

def edit(t, name, *edits, flags=(), **kw):
    return t.worker.do("edit", t.path(name), *flags, body=edit_body(*edits), **kw)


@test
def an_edit_changes_what_it_names_and_nothing_else(t):
    cases = [
        (b"one two three", [(b"two", b"2")], b"one 2 three", 1),
        (b"a\r\nb\r\nc\r\n", [(b"b\r\n", b"B\r\nB2\r\n")], b"a\r\nB\r\nB2\r\nc\r\n", 1),
        ("gr\xfcn ros\xe9".encode("latin-1"), [(b"ros", b"ROS")], "gr\xfcn ROS\xe9".encode("latin-1"), 1),
        (b"gr\xfcn", [(b"\xfc", b"\xc3\xbc")], b"gr\xc3\xbcn", 1),
        (b"no newline", [(b"newline", b"end")], b"no end", 1),
        (b"nul \0 nul \0x", [(b"\0x", b"\0\0")], b"nul \0 nul \0\0", 1),
        (b"aXbXc", [(b"X", b"--", True)], b"a--b--c", 2),
        (b"aaaa", [(b"aa", b"b", True)], b"bb", 2),
        (b"aaa", [(b"a", b"", True)], b"", 3),
        (b"whole", [(b"whole", b"")], b"", 1),
        (b"x" * 100, [(b"x", b"yy", True)], b"y" * 200, 100),
        (b"first", [(b"first", b"second"), (b"second", b"third"), (b"third", b"fourth")], b"fourth", 3),
        (b"ab" * 50000 + b"END", [(b"END", b"fin"), (b"b", b"", True)], b"a" * 50000 + b"fin", 50001),
    ]
    for before, edits, after, count in cases:
        path = t.file("f", before, 0o640)
        os.chown(path, 1000, 1000) if os.getuid() == 0 else None
        r = edit(t, "f", *edits)
        assert r.end.code == "ok" and r.end.count == count, (r.end, edits)
        assert open(path, "rb").read() == after, (edits, open(path, "rb").read())
        assert r.end.digest == hashlib.sha256(after).digest()
        st = os.stat(path)
        assert r.info.tag == (st.st_ino, len(after), st.st_mtime_ns, st.st_ctime_ns) and st.st_mode & 0o777 == 0o640
        assert os.listdir(t.dir) == [b"f"], "nothing is left behind"


@test
def an_edit_that_fits_nowhere_or_twice_changes_nothing(t):
    path = t.file("f", b"one two two aaa\n", 0o666)
    before = os.stat(path)
    cases = [
        ([(b"nowhere", b"x")], "conflict", 0, "the old text is not there"),
        ([(b"nowhere", b"x"), (b"one", b"1")], "conflict", 0, "edit 1: the old text is not there"),
        ([(b"two", b"x")], "conflict", 2, "the old text is there 2 times"),
        ([(b"aa", b"x")], "conflict", 2, "2 times"),
        ([(b"one", b"1"), (b"one", b"2")], "conflict", 0, "edit 2"),
        ([(b"one", b"1"), (b"nowhere", b"2", True)], "conflict", 0, "edit 2"),
        ([(b"", b"x")], "invalid", 0, "no old text"),
        ([], "invalid", 0, "no edits"),
    ]
    for edits, code, count, text in cases:
        r = edit(t, "f", *edits)
        assert r.end.code == code and text in r.end.msg and r.info is None, (edits, r.end)
        assert len(edits) != 1 or "edit 1" not in r.end.msg or code != "conflict", (edits, r.end)
        assert code != "conflict" or r.end.count == count, (edits, r.end)
        st = os.stat(path)
        assert (st.st_ino, st.st_mtime_ns) == (before.st_ino, before.st_mtime_ns) and os.listdir(t.dir) == [b"f"]
    good = edit_body((b"one", b"1"))
    for body in (good[:-1], good + b"\0", b"\2" + good[1:], b"\0\xff\xff\xff\xff", good[:5]):
        r = t.worker.do("edit", path, body=body)
        assert r.end.code == "invalid", (body, r.end)
    assert open(path, "rb").read() == b"one two two aaa\n"


@test
def an_edit_keeps_its_bounds_and_conditions(t):
    path = t.file("f", b"x" * 1000, 0o666)
    if os.getuid() == 0:
        os.chown(path, 1000, 1000)
    assert edit(t, "f", (b"x", b"y", True), max_bytes=999).end.code == "too_large"
    assert edit(t, "f", (b"x", b"yy", True), max_bytes=1999).end.code == "too_large"
    assert edit(t, "f", (b"x", b"y" * 1000000, True), max_bytes=2**63).end.code in ("ok", "exhausted")
    t.file("f", b"x" * 1000)
    assert edit(t, "f", (b"x", b"yy", True), max_bytes=2000).end.code == "ok"
    tag = t.worker.do("stat", path).info.tag
    r = edit(t, "f", (b"y", b"z", True), flags=["if_match"], tag=tag)
    assert r.end.code == "ok" and r.info.tag != tag
    assert edit(t, "f", (b"z", b"a", True), flags=["if_match"], tag=tag).end.code == "changed"
    assert open(path, "rb").read() == b"z" * 2000
    assert edit(t, "missing", (b"a", b"b")).end.code == "not_found"
    assert edit(t, "missing/x", (b"a", b"b"), flags=["parents"]).end.code == "not_found"
    assert not os.path.lexists(t.path("missing"))
    os.mkdir(t.path("d"))
    assert edit(t, "d", (b"a", b"b")).end.code == "is_directory"
    os.mkfifo(t.path("fifo"))
    assert edit(t, "fifo", (b"a", b"b")).end.code == "not_regular"
    os.symlink("f", t.path("link"))
    assert edit(t, "link", (b"z", b"l", True)).end.code == "ok"
    assert os.readlink(t.path("link")) == b"f" and open(path, "rb").read() == b"l" * 2000
    if os.getuid() == 0:
        secret = t.file("secret", b"key", 0o644)
        assert edit(t, "secret", (b"key", b"x")).end.code == "denied" and open(secret, "rb").read() == b"key"


@test
def an_edit_does_not_undo_what_another_wrote(t):
    # While a large file is edited another one takes its place: that one stays.
    size = 24 << 20
    path, new = t.path("f"), t.path("new")
    told = 0
    for i in range(12):
        t.file("f", b"A" * size + b"n=0", 0o666)
        t.file("new", b"B" * 100, 0o666)
        t.worker.start("edit", path)
        t.worker.send(BODY, edit_body((b"n=0", b"n=1")))
        t.worker.send(BODY_END)
        time.sleep(0.006 * i)
        os.rename(new, path)
        r = t.worker.finish()
        assert r.end.code in ("ok", "changed", "conflict"), r.end
        told += r.end.code == "changed"
        assert os.path.getsize(path) == 100, "what was written last is gone"
    assert not [n for n in os.listdir(t.dir) if n.startswith(b".garret")]
    print("    %d of 12 edits were told that the file changed" % told)


if __name__ == "__main__":
    sys.exit(run_tests(TESTS, lambda: Search(HOST), sys.argv[2:]))
