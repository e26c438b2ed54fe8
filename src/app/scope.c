/*
 * Who shares files with whom.  A key is
 *
 *	{d|x}{r|c|h|u|a}-{organisation, 8}[-{connection, 8}]-{subject, 32}
 *
 * d is a document, x a session of a service.  What platforms call their channels and users is
 * hashed: two of them that differ in punctuation only must not meet.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app_impl.h"
#include "base/mem.h"
#include "base/sized.h"

static const struct {
	const char *name;
	char letter;
} scopes[GARRET_APP_SCOPES] = {
	[GARRET_APP_SCOPE_CONVERSATION] = { "conversation", 'c' },
	[GARRET_APP_SCOPE_RUN] = { "run", 'r' },
	[GARRET_APP_SCOPE_CHANNEL] = { "channel", 'h' },
	[GARRET_APP_SCOPE_USER] = { "user", 'u' },
	[GARRET_APP_SCOPE_AGENT] = { "agent", 'a' },
};

const char *garret_app_scope_name(enum garret_app_scope s)
{
	return (unsigned)s < GARRET_APP_SCOPES ? scopes[s].name : "unknown";
}

int garret_app_scope_parse(const char *name, enum garret_app_scope *ret, struct garret_error *err)
{
	for (unsigned i = 0; name && i < GARRET_APP_SCOPES; i++)
		if (!strcmp(scopes[i].name, name)) {
			*ret = (enum garret_app_scope)i;
			return 0;
		}
	return garret_fail(err, GARRET_INVALID,
			   "session_scope: run, conversation, channel, user or agent");
}

/* ---- facts ---- */

#define NAME_MAX_BYTES 1024

static int outside_name(const char *field, const char *text, char **ret, struct garret_error *err)
{
	if (!text)
		return 0;
	if (!*text || strlen(text) > NAME_MAX_BYTES)
		return garret_fail(err, GARRET_INVALID, "%s: 1 to %d bytes", field, NAME_MAX_BYTES);
	*ret = xstrdup(text);
	return 0;
}

int app_facts_check(const struct garret_app_facts *given, struct app_facts *ret,
		    struct garret_error *err)
{
	struct garret_app_facts f = { 0 };
	int rc = sized_copy(&f, sizeof(f), given, given->size, err);

	memset(ret, 0, sizeof(*ret));
	if (rc == 0)
		rc = app_id("organisation", f.organisation, ret->organisation, err);
	if (rc == 0)
		rc = app_id("agent", f.agent, ret->agent, err);
	if (rc == 0)
		rc = app_id("run", f.run, ret->run, err);
	if (rc == 0 && f.conversation)
		rc = app_id("conversation", f.conversation, ret->conversation, err);
	if (rc == 0)
		rc = outside_name("channel", f.channel, &ret->channel, err);
	if (rc == 0)
		rc = outside_name("user", f.user, &ret->user, err);
	if (rc < 0)
		app_facts_release(ret);
	return rc;
}

void app_facts_release(struct app_facts *f)
{
	free(f->channel);
	free(f->user);
	f->channel = f->user = NULL;
}

int app_scope_check(const struct app_facts *f, enum garret_app_scope scope,
		    struct garret_error *err)
{
	const char *missing = NULL;

	if ((unsigned)scope >= GARRET_APP_SCOPES)
		return garret_app_scope_parse(NULL, &scope, err);
	if (scope == GARRET_APP_SCOPE_CONVERSATION && !*f->conversation)
		missing = "conversation";
	else if (scope == GARRET_APP_SCOPE_CHANNEL && !f->channel)
		missing = "channel";
	else if (scope == GARRET_APP_SCOPE_USER && !f->user)
		missing = "user";
	if (!missing)
		return 0;
	return garret_fail(err, GARRET_INVALID,
			   "session_scope: %s needs a %s, and this run has none", missing, missing);
}

/* ---- keys ---- */

static void subject(const struct app_facts *f, enum garret_app_scope scope, char ret[33])
{
	const char *outside = scope == GARRET_APP_SCOPE_CHANNEL ? f->channel : f->user;
	char digest[65];

	if (scope == GARRET_APP_SCOPE_CONVERSATION) {
		app_copy(ret, 33, f->conversation);
	} else if (scope == GARRET_APP_SCOPE_RUN) {
		app_copy(ret, 33, f->run);
	} else if (scope == GARRET_APP_SCOPE_AGENT) {
		app_copy(ret, 33, f->agent);
	} else {
		app_sha256(outside, strlen(outside), digest);
		(void)snprintf(ret, 33, "%.8s%.24s", f->agent, digest);
	}
}

void app_scope_key(const struct app_facts *f, enum garret_app_scope scope,
		   const char *connection_id, char ret[GARRET_APP_KEY])
{
	char of[33];

	subject(f, scope, of);
	(void)snprintf(ret, GARRET_APP_KEY, "%c%c-%.8s%s%.8s-%s", connection_id ? 'x' : 'd',
		       scopes[scope].letter, f->organisation, connection_id ? "-" : "",
		       connection_id ? connection_id : "", of);
}

int garret_app_scope_key(const struct garret_app_facts *facts, enum garret_app_scope scope,
			 const char *connection_id, char ret[GARRET_APP_KEY],
			 struct garret_error *err)
{
	struct app_facts f;
	char connection[GARRET_APP_ID];
	int rc = app_facts_check(facts, &f, err);

	if (rc == 0)
		rc = app_scope_check(&f, scope, err);
	if (rc == 0 && connection_id)
		rc = app_id("connection_id", connection_id, connection, err);
	if (rc == 0)
		app_scope_key(&f, scope, connection_id ? connection : NULL, ret);
	app_facts_release(&f);
	return rc;
}

void app_user_hash(const char *user, char ret[GARRET_APP_KEY])
{
	app_sha256(user, strlen(user), ret);
}
