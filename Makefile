# Everything is built by meson; this only names the things people do.
#
#	make		build into build/
#	make demo	open a session through the daemon and work in it
#	make check	all tests that need no outside service
#	make chaos	kill every process at random instants, two hundred times
#	make soak	the long forms
#	make install	programs, library, manuals and units (PREFIX=/usr/local, DESTDIR)

BUILD ?= build
PREFIX ?= /usr/local

all: setup-build
	@[ -f $(BUILD)/build.ninja ] || meson setup --prefix=$(PREFIX) $(BUILD) >/dev/null
	@ninja -C $(BUILD) --quiet

setup-build:
	@tools/setup build

demo: all
	@tools/demo $(BUILD)

check:
	@tools/setup check
	@tools/run-tests check

soak:
	@tools/setup check
	@tools/run-tests soak

chaos: all
	@tests/fault/chaos.py $(BUILD) --kills 200

format:
	@git ls-files '*.c' '*.h' | xargs clang-format-14 -i

install: all
	@meson configure $(BUILD) --prefix=$(PREFIX) && ninja -C $(BUILD) --quiet
	@meson install -C $(BUILD) --no-rebuild
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

clean:
	rm -rf $(BUILD) build-*

.PHONY: all setup-build demo check chaos soak format install clean
