/* garret conform: the rules that every provider must keep, run against one. */
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/fd.h"
#include "cli/cli.h"
#include "conform/conform.h"

struct conform_opts {
	bool list, help;
	const char *only;
	struct opt_list set;
};

/* clang-format off */
#define C(f, n, l, k, a, h) OPT(struct conform_opts, f, n, l, k, a, h)
static const struct opt table[] = {
	C(set,  "set",  's', OPT_LIST,   "NAME=VALUE", "an option of the provider (garret-providers(7))"),
	C(only, "only", 0,   OPT_STRING, "TEXT", "only rules whose name holds TEXT"),
	C(list, "list", 0,   OPT_FLAG,   NULL, "print the names of the rules"),
	C(help, "help", 'h', OPT_FLAG,   NULL, "show this"),
	{ 0 },
};
/* clang-format on */

static int main_conform(int argc, char **argv)
{
	struct conform_opts opts = { 0 };
	struct garret_error err = { 0 };
	struct conform_options o = { 0 };
	struct conform_counts counts;
	autofree char *self = program_beside("");
	int used = opt_parse_all(table, argc, argv, &opts, &err);

	if (used < 0)
		return cli_fail(&err);
	if (opts.help)
		return cli_help(&command_conform);
	if (!opts.list && argc - used != 1) {
		(void)garret_fail(&err, GARRET_INVALID,
				  "conform takes one provider: native, docker, sandboxd, state");
		return cli_fail(&err);
	}
	o.provider = argv[used];
	o.settings = opts.set.item;
	o.program_dir = self;
	o.only = opts.only;
	o.list = opts.list;
	if (conform_run(&o, stdout, &counts, &err) < 0)
		return cli_no_sandbox(&err);
	if (opts.list)
		return 0;
	(void)printf("%u passed, %u failed", counts.passed, counts.failed);
	if (counts.skipped)
		(void)printf(", %u skipped", counts.skipped);
	(void)putchar('\n');
	return counts.failed || !counts.passed ? 1 : 0;
}

const struct command command_conform = {
	.name = "conform",
	.synopsis = "[OPTIONS] PROVIDER",
	.help = "Check that a provider keeps the rules of the workspace contract",
	.table = table,
	.main = main_conform,
};
