package engine

import (
	"log/slog"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/kvactor/kvactor/actors"
)

// spawnActors starts the engine of package actors in an actor system of its
// own, whose log is not for the readers of the demo's output.
func spawnActors(s Setup) (Engine, func(), error) {
	quiet := actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) })
	system := actor.NewActorSystem(quiet)
	e, err := actors.Spawn(system.Root, actors.Config{
		Model: s.Model, Cache: s.Cache, Pages: s.Pages, Device: s.Device,
	}, actors.WithClock(s.Clock))
	if err != nil {
		system.Shutdown()
		return nil, nil, err
	}
	return e, system.Shutdown, nil
}
