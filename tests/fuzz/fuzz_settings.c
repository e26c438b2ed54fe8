/* What operators write: options, engine.conf, environment. */
#include <string.h>

#include "base/mem.h"
#include "base/opt.h"
#include "core/config.h"
#include "engine/conf.h"
#include "fuzz.h"

struct options {
	bool flag, other;
	const char *text;
	struct opt_list list;
	uint64_t size, number;
	double seconds, cpus;
};

static const struct opt table[] = {
	OPT(struct options, flag, "flag", 'f', OPT_FLAG, NULL, "a flag"),
	OPT(struct options, other, "other", 0, OPT_FLAG, NULL, "another"),
	OPT(struct options, text, "text", 't', OPT_STRING, "TEXT", "text"),
	OPT(struct options, list, "list", 'l', OPT_LIST, "ITEM", "list"),
	OPT(struct options, size, "size", 's', OPT_SIZE, "BYTES", "size"),
	OPT(struct options, number, "number", 'n', OPT_NUMBER, "N", "number"),
	OPT(struct options, seconds, "seconds", 0, OPT_SECONDS, "S", "time"),
	OPT(struct options, cpus, "cpus", 'c', OPT_CPUS, "N", "cpus"),
	{ 0 },
};

#define WORDS_MAX 100

/* Words end with a NUL or a newline. */
static void options(char *text, size_t n)
{
	char *argv[WORDS_MAX + 2] = { (char *)(uintptr_t) "program" };
	struct options o = { .flag = false };
	struct garret_error err = { 0 };
	int argc = 1, used;

	for (size_t at = 0; at < n && argc <= WORDS_MAX; at++) {
		argv[argc++] = text + at;
		at += strcspn(text + at, "\n");
		text[at] = '\0';
	}
	argv[argc] = NULL;
	used = opt_parse(table, argc, argv, &o, &err);
	CHECK(used < 0 ? err.code && err.msg[0] : used >= 1 && used <= argc);
	CHECK(o.list.n <= OPT_LIST_MAX && !o.list.item[o.list.n]);
}

static void engine_conf(char *text)
{
	struct garret_error err = { 0 };
	struct conf c;

	conf_init(&c);
	if (conf_parse(&c, "fuzz", text, &err) < 0)
		CHECK(err.code && err.msg[0]);
	conf_done(&c);
}

static void environment(const char *text, unsigned which)
{
	static const char *const names[] = {
		"SANDBOXD_RUNTIMES",     "SANDBOXD_RUNTIMES",   "SANDBOXD_RUNTIMES",
		"SANDBOXD_MEM_LIMIT",    "SANDBOXD_CPUS",       "SANDBOXD_MAX_SESSIONS",
		"SANDBOXD_PORT",         "SANDBOXD_WORK_DIR",   "SANDBOXD_DEFAULT_RUNTIME",
		"SANDBOXD_TMPFS_SIZE",   "SANDBOXD_CPU_SHARES", "SANDBOXD_PREWARM",
		"SANDBOXD_NETWORK_MODE",
	};
	const char *name = names[which % ARRAY_SIZE(names)];
	struct garret_error err = { 0 };
	struct config c;

	CHECK(setenv(name, text, 1) == 0);
	if (config_from_env(&c, &err) == 0) {
		CHECK(c.n_runtimes && c.default_runtime && config_runtime(&c, c.default_runtime));
		config_release(&c);
	} else {
		CHECK(err.code && err.msg[0]);
	}
	CHECK(unsetenv(name) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char *text;

	if (!n)
		return 0;
	text = xstrndup((const char *)data + 1, n - 1);
	environment(text, data[0]);
	engine_conf(text);
	free(text);
	text = xcalloc(1, n);
	memcpy(text, data + 1, n - 1);
	options(text, n - 1);
	free(text);
	return 0;
}
