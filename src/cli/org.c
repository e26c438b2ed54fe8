#include "cli/org.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/show.h"

static bool is_id(const char *s)
{
	size_t n = 0;

	for (; *s; s++) {
		if (*s == '-')
			continue;
		if (!strchr("0123456789abcdefABCDEF", *s))
			return false;
		n++;
	}
	return n == 32;
}

static int find_organisation(struct org_command *c, struct garret_error *err)
{
	if (!c->opts.organisation)
		c->opts.organisation = getenv("GARRET_ORGANISATION");
	if (!c->opts.organisation || !*c->opts.organisation)
		return garret_fail(err, GARRET_INVALID,
				   "whose? --organisation ID, or the variable GARRET_ORGANISATION");
	return is_id(c->opts.organisation)
		       ? 0
		       : garret_fail(err, GARRET_INVALID, "--organisation: a UUID, not \"%.80s\"",
				     c->opts.organisation);
}

bool org_begin(struct org_command *c, const char *of, const struct command *command, int argc,
	       char **argv, int min, int max)
{
	struct garret_error err = { 0 };
	int used, rc = 0;

	memset(c, 0, sizeof(*c));
	used = opt_parse_all(command->table, argc, argv, &c->opts, &err);
	if (used >= 0 && c->opts.help) {
		struct command shown = *command;
		autofree char *name =
			*of ? xasprintf("%s %s", of, command->name) : xstrdup(command->name);

		shown.name = name;
		c->status = cli_help(&shown);
		return false;
	}
	if (used < 0) {
		rc = used;
	} else {
		c->words = argv + used;
		c->n_words = argc - used;
		if (c->n_words < min)
			rc = garret_fail(&err, GARRET_INVALID, "%s%s%s %s: something is missing",
					 of, *of ? " " : "", command->name, command->synopsis);
		else if (c->n_words > max)
			rc = garret_fail(&err, GARRET_INVALID, "%s%s%s: \"%.80s\" is too much", of,
					 *of ? " " : "", command->name, c->words[max]);
		/* It would name the list that it should be one of. */
		for (int i = 0; rc == 0 && i < c->n_words; i++)
			if (!*c->words[i])
				rc = garret_fail(&err, GARRET_INVALID, "%s%s%s %s: one is empty",
						 of, *of ? " " : "", command->name,
						 command->synopsis);
	}
	if (rc == 0)
		rc = find_organisation(c, &err);
	if (rc == 0)
		rc = remote_find(&c->remote, c->opts.url, &err);
	if (rc < 0)
		c->status = cli_fail(&err);
	return rc == 0;
}

static void encode(struct strbuf *out, const char *s)
{
	for (; *s; s++) {
		if ((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
		    (*s >= '0' && *s <= '9') || strchr("-._~", *s))
			strbuf_addch(out, *s);
		else
			strbuf_addf(out, "%%%02X", (unsigned char)*s);
	}
}

void org_path(struct strbuf *path, const struct org_command *c, const char *tail, const char *part)
{
	strbuf_addf(path, "/v1/orgs/%s/", c->opts.organisation);
	for (; *tail; tail++) {
		if (*tail == '%')
			encode(path, part);
		else
			strbuf_addch(path, *tail);
	}
}

void org_query(struct strbuf *path, const char *name, const char *value)
{
	if (!value)
		return;
	strbuf_addf(path, "%c%s=", strchr(path->buf, '?') ? '&' : '?', name);
	encode(path, value);
}

static void query_number(struct strbuf *path, const char *name, uint64_t value)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	org_query(path, name, value ? text : NULL);
}

void org_range(struct strbuf *path, const struct org_opts *o)
{
	query_number(path, "limit", o->limit);
	query_number(path, "offset", o->offset);
}

int org_show(struct org_command *c, const char *method, const char *path, json_t *body,
	     void (*fn)(const json_t *answer))
{
	struct garret_error err = { 0 };
	json_t *answer = NULL;
	int rc = remote_call(&c->remote, method, path, body, &answer, &err);

	json_decref(body);
	if (rc == 0 && answer && c->opts.json)
		show_json(answer);
	else if (rc == 0 && answer && fn)
		fn(answer);
	json_decref(answer);
	if (rc == 0)
		rc = show_flush(&err);
	return rc < 0 ? cli_fail(&err) : 0;
}

int org_simple(const char *of, const struct command *command, int argc, char **argv,
	       const char *method, const char *tail, void (*fn)(const json_t *answer))
{
	const int words = strchr(tail, '%') ? 1 : 0;
	autobuf struct strbuf path = STRBUF_INIT;
	struct org_command c;

	if (!org_begin(&c, of, command, argc, argv, words, words))
		return c.status;
	org_path(&path, &c, tail, c.words[0]);
	return org_show(&c, method, path.buf, NULL, fn);
}

ssize_t org_read(const char *file, void *ret, size_t most, struct garret_error *err)
{
	const bool standard = !strcmp(file, "-");
	autoclose int own = standard ? -EBADF : open(file, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (own < 0 && !standard)
		return garret_fail_errno(err, "open %s", file);
	n = read_full(standard ? STDIN_FILENO : own, ret, most);
	return n < 0 ? garret_fail_errno(err, "read %s", file) : n;
}

const char *org_text(const json_t *v, const char *name)
{
	const char *text = json_string_value(json_object_get(v, name));

	return text && *text ? text : "-";
}

const char *org_time(const json_t *v, const char *name, char ret[32])
{
	const json_t *at = json_object_get(v, name);
	const time_t t = (time_t)json_number_value(at);
	struct tm tm;

	(void)snprintf(ret, 32, "-");
	if (json_is_number(at) && localtime_r(&t, &tm))
		(void)strftime(ret, 32, "%Y-%m-%d %H:%M:%S", &tm);
	return ret;
}
