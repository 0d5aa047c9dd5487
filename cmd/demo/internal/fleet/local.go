package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvactor/kvactor/events"
	"github.com/kvactor/kvactor/messages/kvevents"
	"github.com/kvactor/kvactor/offloader/stores"
	"github.com/kvactor/kvactor/windows"
)

// local is an engine in this process. Its router follows it with a mirror, which holds it
// to every one of its events.
type local struct {
	host   *host
	stage  *stage // nil: no store
	reader kvevents.ReaderID
	mirror *events.Mirror
	pools  []windows.Pool
	events int
}

// NewLocal starts an engine in this process. A store is shared with other engines and may
// be nil.
func NewLocal(ctx context.Context, s Settings, store stores.Store) (Engine, error) {
	l := &local{mirror: events.NewMirror()}
	var own stores.Store
	if store != nil {
		l.stage = newStage(store)
		own = l.stage
	}
	var err error
	if l.host, err = newHost(s, own); err != nil {
		return nil, err
	}
	l.pools = l.host.rig.Pools
	if l.reader, err = l.host.engine.OpenReader(ctx); err == nil {
		err = l.snapshot(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, l.host.kill(context.WithoutCancel(ctx)))
	}
	return l, nil
}

func (l *local) run(ctx context.Context, w Window) (Reply, error) {
	if !w.Finish {
		return l.host.run(ctx, w)
	}
	engine := events.NewMirror()
	batch, err := l.host.engine.SnapshotOf(ctx, l.reader)
	if err == nil {
		err = engine.Follow(batch)
	}
	if err != nil {
		return Reply{}, err
	}
	wrong := l.mirror.Compare(batch)
	r, err := l.host.finish(ctx)
	r.Blocks = engine.Len()
	if wrong != nil {
		r.Problems = append(r.Problems, fmt.Sprintf("the index is not the engine's: %v", wrong))
	}
	return r, err
}

// follow publishes what the engine has written and takes its events. Contradictions in
// them are errors.
func (l *local) follow(ctx context.Context, _ *Reply) error {
	if l.stage != nil {
		if err := l.stage.publish(ctx); err != nil {
			return err
		}
	}
	batch, err := l.host.engine.EventsOf(ctx, l.reader)
	if err != nil {
		return err
	}
	l.events += len(batch.Events)
	if batch.Lost > 0 {
		return l.snapshot(ctx)
	}
	return l.mirror.Follow(batch)
}

func (l *local) snapshot(ctx context.Context) error {
	batch, err := l.host.engine.SnapshotOf(ctx, l.reader)
	if err != nil {
		return err
	}
	return l.mirror.Follow(batch)
}

func (l *local) match(names []kvevents.Hash) int { return l.mirror.Match(l.pools, names) }

func (l *local) index() Index { return Index{Blocks: l.mirror.Len(), Events: l.events} }

func (l *local) kill(ctx context.Context, _ Window) error { return l.host.kill(ctx) }
