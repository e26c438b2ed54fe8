#include "cli/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"

#define ANSWER_MAX (128u * 1024 * 1024) /* 10 MiB of output grow sixfold at most */

/* Whether something is there that speaks HTTP, token or not. */
static bool daemon_answers(const struct remote *r, struct garret_error *err)
{
	autobuf struct strbuf answer = STRBUF_INIT;
	int status;

	return http1_request(&r->target, "GET", "/healthz", NULL, NULL, 64 * 1024, &status, &answer,
			     err) >= 0;
}

static int find_token(struct remote *r, struct garret_error *err)
{
	const char *token = getenv("SANDBOXD_TOKEN"), *state = getenv("GARRET_STATE_DIR");
	autofree char *path = NULL;
	int why;

	if (token && *token) {
		if (strlen(token) >= sizeof(r->token) || strpbrk(token, "\r\n"))
			return garret_fail(err, GARRET_INVALID,
					   "SANDBOXD_TOKEN: one line of at most %zu bytes",
					   sizeof(r->token) - 1);
		(void)snprintf(r->token, sizeof(r->token), "%s", token);
		return 0;
	}
	path = xasprintf("%s/daemon/token", state && *state ? state : "/var/lib/garret");
	if (read_file_at(AT_FDCWD, path, r->token, sizeof(r->token)) >= 0)
		return 0;
	why = errno;
	/* Before its first start there is no token either, but that isn't what is missing. */
	if (why == ENOENT && !daemon_answers(r, err))
		return -(int)err->code;
	return garret_fail(
		err, GARRET_UNAUTHORIZED,
		"no token: set SANDBOXD_TOKEN, or GARRET_STATE_DIR as `garret serve` has it (%s: %s)",
		path, strerror(why));
}

int remote_find(struct remote *r, const char *url, struct garret_error *err)
{
	const char *sock = getenv("GARRET_SOCKET");
	autofree char *from_socket = NULL;
	int rc;

	if (!url)
		url = getenv("GARRET_URL");
	if (!url && sock && *sock)
		from_socket = xasprintf("unix:%s", sock);
	if (from_socket)
		url = from_socket;
	rc = http1_parse_url(url && *url ? url : "http://127.0.0.1:8080", &r->target, err);
	return rc < 0 ? rc : find_token(r, err);
}

enum garret_code remote_code(int status)
{
	if (status == 422)
		return GARRET_INVALID;
	if (status == 500)
		return GARRET_INTERNAL;
	if (status == 408)
		return GARRET_TIMEOUT;
	/* Of several with one status the first one is the general one. */
	for (int c = GARRET_OK + 1; c < GARRET_CODES; c++)
		if (garret_code_http(c) == status)
			return (enum garret_code)c;
	return status < 500 ? GARRET_INVALID : GARRET_INTERNAL;
}

char *remote_detail(const json_t *doc)
{
	const json_t *detail = json_object_get(doc, "detail"), *at;

	if (json_is_string(detail))
		return xstrdup(json_string_value(detail));
	if (json_is_object(detail) && json_is_string(json_object_get(detail, "message")))
		return xstrdup(json_string_value(json_object_get(detail, "message")));
	/* What a body or query was refused for: {loc: ["query", "path"], msg: "..."} */
	at = json_object_get(json_array_get(detail, 0), "loc");
	at = json_array_get(at, json_array_size(at) - 1);
	if (json_is_string(json_object_get(json_array_get(detail, 0), "msg")))
		return xasprintf(
			"%s: %s", json_is_string(at) ? json_string_value(at) : "request",
			json_string_value(json_object_get(json_array_get(detail, 0), "msg")));
	return detail ? json_dumps(detail, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
}

static int refused(int status, json_t *doc, struct garret_error *err)
{
	autofree char *text = remote_detail(doc);

	return garret_fail(err, remote_code(status), "%s (%d)", text ? text : "the daemon refused",
			   status);
}

int remote_call(const struct remote *r, const char *method, const char *path, json_t *body,
		json_t **ret, struct garret_error *err)
{
	autobuf struct strbuf answer = STRBUF_INIT, sent = STRBUF_INIT;
	autofree char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	json_error_t je;
	json_t *doc;
	int status = 0, rc;

	if (body && !text)
		return garret_fail(err, GARRET_INVALID, "arguments and variables must be UTF-8");
	if (text)
		strbuf_addstr(&sent, text);
	rc = http1_request(&r->target, method, path, r->token, text ? &sent : NULL, ANSWER_MAX,
			   &status, &answer, err);
	if (rc < 0)
		return rc;
	doc = answer.len ? json_loadb(answer.buf, answer.len, JSON_ALLOW_NUL, &je) : NULL;
	if (status >= 400) {
		rc = refused(status, doc, err);
		json_decref(doc);
		return rc;
	}
	if (answer.len && !doc)
		return garret_fail(err, GARRET_PROTOCOL, "the daemon's answer isn't JSON: %s",
				   je.text);
	if (ret)
		*ret = doc;
	else
		json_decref(doc);
	return 0;
}

int remote_upgrade(const struct remote *r, const char *path, const char *protocol, json_t *body,
		   int *ret_fd, struct strbuf *early, struct garret_error *err)
{
	autofree char *text = json_dumps(body, JSON_COMPACT);
	autobuf struct strbuf sent = STRBUF_INIT;
	json_t *doc;
	int status = 0, rc;

	if (!text)
		return garret_fail(err, GARRET_INVALID, "arguments and variables must be UTF-8");
	strbuf_addstr(&sent, text);
	rc = http1_upgrade(&r->target, path, r->token, protocol, &sent, ret_fd, &status, early,
			   err);
	if (rc < 0 || status == 101)
		return rc;
	doc = early->len ? json_loadb(early->buf, early->len, JSON_ALLOW_NUL, NULL) : NULL;
	rc = refused(status, doc, err);
	json_decref(doc);
	return rc;
}
