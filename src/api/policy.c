/* GET /policy: what clients may count on. */
#include "api/handlers.h"
#include "api/wire.h"

void policy_get(struct call *c)
{
	struct strbuf out = STRBUF_INIT;

	wire_policy(&out, service_config(c->service));
	call_answer(c, 200, &out);
}
