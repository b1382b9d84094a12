"""A run on Ray, from its config to its end.

    train, client, controller, ...   a run: who starts it, who leads it, how it is found, gone on with, forked
    hands                            commands of the brain become calls of actors, and what comes of them events
    spot                             notices of clouds that a node is to go
    cluster | sinks                  Ray and its nodes | where figures go while a run trains
    records                          what a run keeps on disk, and what can be said of it from there
    process                          threads, late imports, children, output

Each line may use those below it (an import-linter contract holds that).
"""
