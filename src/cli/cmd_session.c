#include "cli/cli.h"
const struct command session_commands[] = { { 0 } };
const struct command command_session = { .name = "session" };
const struct command command_exec = { .name = "exec" };
