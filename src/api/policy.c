/* The limits in force: GET /policy says what clients may count on, PUT changes it. */
#include "api/handlers.h"
#include "api/wire.h"

void policy_get(struct call *c)
{
	struct strbuf out = STRBUF_INIT;

	wire_policy(&out, service_config(c->service));
	call_answer(c, 200, &out);
}

static void changed(void *ctx, const struct refusal *no, const struct json_errors *invalid)
{
	struct call *c = ctx;

	if (invalid->n) {
		struct json_errors shown = { .items = STRBUF_INIT, .n = invalid->n };

		strbuf_add(&shown.items, invalid->items.buf, invalid->items.len);
		call_invalid(c, &shown);
	} else if (no->status) {
		call_refusal(c, no);
	} else {
		policy_get(c);
	}
	call_unref(c);
}

void policy_put(struct call *c)
{
	service_set_policy(c->service, c->body, *c->caller.name ? c->caller.name : "service token",
			   changed, call_ref(c));
}
