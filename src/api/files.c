/*
 * The file routes, until files are served without a shell: GET /policy says so
 * and 409 is the published way to say "use the shell" for one file.
 */
#include "api/handlers.h"
#include "api/wire.h"

void files_use_shell(struct call *c)
{
	call_refuse(c, 409, "Native file operations are off; use the session's shell");
}
