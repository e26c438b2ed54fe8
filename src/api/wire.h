/* The JSON shapes of the wire, and the ways to answer. */
#ifndef API_WIRE_H
#define API_WIRE_H

#include "api/route.h"
#include "base/strbuf.h"

#define WIRE_JSON "application/json"

/* Shapes; keys in the published order. */
void wire_session(struct strbuf *out, const struct session_info *info);
void wire_event(struct strbuf *out, const struct session_event *e);
void wire_policy(struct strbuf *out, const struct config *c);
void wire_health(struct strbuf *out, const struct service *s);
/* A setting: CONFIG_NULL is null. */
void wire_number(struct strbuf *out, const char *key, int64_t v);

/* Answers.  All do nothing when the client is gone. */
void call_answer(struct call *c, unsigned status, struct strbuf *json); /* takes the memory */
void call_no_content(struct call *c);
void call_refuse(struct call *c, unsigned status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void call_refusal(struct call *c, const struct refusal *no);
/* For work that answers nothing: 204 or the refusal; gives back the reference in ctx. */
void call_done(void *ctx, const struct refusal *no);
void call_invalid(struct call *c, struct json_errors *e); /* 422; releases e */

#endif
