/* Functions that are too easy to misuse; included by the build into every file. */
#ifndef BASE_BANNED_H
#define BASE_BANNED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#pragma GCC poison strcpy strcat strncpy strncat sprintf vsprintf strtok atoi atol gets mktemp \
	tmpnam rand system popen ctime asctime gmtime localtime

#endif
