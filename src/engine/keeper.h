/*
 * The keeper: a process between garretd and its private engine that does nothing but
 * start the engine again when it was killed.  garretd can't: it has given root up.
 */
#ifndef ENGINE_KEEPER_H
#define ENGINE_KEEPER_H

/*
 * For each engine that is started, our peer gets a message with the socket to it over
 * `control`, whose end is the end of us all.  In the engine's process this returns
 * its socket (the caller becomes the engine); the keeper itself never returns.
 */
int keeper_run(int control);

#endif
