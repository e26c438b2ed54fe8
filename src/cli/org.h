/* What the commands on organisations share: whose, and which daemon. */
#ifndef CLI_ORG_H
#define CLI_ORG_H

#include <sys/types.h>

#include "base/strbuf.h"
#include "cli/cli.h"
#include "cli/remote.h"

struct org_opts {
	const char *organisation, *url;
	const char *agent, *run, *conversation, *channel, *user, *scope, *connection; /* facts */
	const char *kind, *address, *account, *runtime, *token_file;
	const char *key, *op, *since, *until;
	uint64_t limit, offset;
	bool is_default, failed, names, json, help;
};

#define ORG_OPT(f, n, k, a, h) OPT(struct org_opts, f, n, 0, k, a, h)
#define ORG_COMMON                                                                              \
	ORG_OPT(organisation, "organisation", OPT_STRING, "ID", "whose (GARRET_ORGANISATION)"), \
		ORG_OPT(url, "url", OPT_STRING, "URL",                                          \
			"the daemon: http://HOST:PORT or unix:PATH"),                           \
		ORG_OPT(json, "json", OPT_FLAG, NULL, "print the daemon's answer as it is"),    \
		OPT(struct org_opts, help, "help", 'h', OPT_FLAG, NULL, "show this"),           \
	{                                                                                       \
		0                                                                               \
	}
#define ORG_RANGE                                                          \
	ORG_OPT(limit, "limit", OPT_NUMBER, "N", "at most so many (100)"), \
		ORG_OPT(offset, "offset", OPT_NUMBER, "N", "leave out so many")

struct org_command {
	struct org_opts opts;
	struct remote remote;
	char **words;
	int n_words;
	int status; /* when it can't go on */
};

/* Options, min to max words, the organisation, the daemon; false: status is all. */
bool org_begin(struct org_command *c, const char *of, const struct command *command, int argc,
	       char **argv, int min, int max);
/* Add a path below the organisation's routes, part encoded for its %: "workspaces/%/document". */
void org_path(struct strbuf *path, const struct org_command *c, const char *tail, const char *part);
/* Add "name=value", encoded, to a query; NULL: not. */
void org_query(struct strbuf *path, const char *name, const char *value);
/* Add what the options of ORG_RANGE say. */
void org_range(struct strbuf *path, const struct org_opts *o);
/* An answer as it is with --json, else shown by fn (NULL: nothing).  The exit status. */
int org_show(struct org_command *c, const char *method, const char *path, json_t *body,
	     void (*fn)(const json_t *answer));
/* All of a command that is one request; the % of its tail is the one word that it takes. */
int org_simple(const char *of, const struct command *command, int argc, char **argv,
	       const char *method, const char *tail, void (*fn)(const json_t *answer));

/* At most `most` bytes of a file, "-": of standard input; how many. */
ssize_t org_read(const char *file, void *ret, size_t most, struct garret_error *err);

/* Text of a field, "-" for none. */
const char *org_text(const json_t *v, const char *name);
/* A time of a field, for people. */
const char *org_time(const json_t *v, const char *name, char ret[32]);

#endif
