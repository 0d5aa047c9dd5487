package fleet

import (
	"fmt"

	"github.com/kvactor/kvactor/cmd/demo/internal/cost"
	"github.com/kvactor/kvactor/cmd/demo/internal/engine"
	"github.com/kvactor/kvactor/messages"
	"github.com/kvactor/kvactor/offloader/stores"
)

// Models are the shapes of models that a fleet can serve: with full attention, with
// windows and full attention, and with windows alone.
var Models = []string{"tiny", "hybrid", "sliding"}

// shape is a model as an engine of the fleet has it: every layer of the modelled model, or
// every layer of its kinds, with 4 bytes of keys and values a token.
type shape struct {
	engine.Preset
	// scale is how many bytes of the modelled model a byte of a page stands for. It is the
	// same in all pools: the layers here have the proportions of those there.
	scale int64
}

// layerTokenBytes are the bytes of keys and values that a token takes in one layer here.
const layerTokenBytes = 4

// shapeOf is the shape of a name.
func shapeOf(name string) (shape, error) {
	s := shape{Preset: engine.Tiny()}
	full := s.Model.MaxSeqLen
	switch name {
	case "", "tiny":
	case "hybrid":
		// Five layers with a window to one without, as Gemma-3 has them.
		s.Costs = cost.Gemma12B()
		s.Windows = []int{gemmaWindow, gemmaWindow, gemmaWindow, gemmaWindow, gemmaWindow, full}
		s.Model.Layers = len(s.Windows)
	case "sliding":
		s.Costs = cost.Mistral7B()
		s.Windows = []int{s.Costs.Windows[0]}
	default:
		return s, fmt.Errorf("model %q is none of %v", name, Models)
	}
	s.scale = int64(s.Costs.KVLayerBytes) * int64(len(s.Costs.Windows)) / int64(
		layerTokenBytes*s.Model.Layers)
	return s, nil
}

// gemmaWindow is the window of Gemma-3's layers that have one.
const gemmaWindow = 1024

// Modelled is the name of the model that a shape of Models stands for.
func Modelled(name string) string {
	s, err := shapeOf(name)
	if err != nil {
		panic(fmt.Sprintf("fleet: %v", err))
	}
	return s.Costs.Name
}

// modelled gives the bytes that objects of a store stand for. An object is a page with
// what says which block it is, which takes the same for each block of so many tokens.
func (s *shape) modelled(objects, bytes int64, blockTokens int) int64 {
	space, block := stores.Space{}, stores.Block{Tokens: make([]messages.Token, blockTokens)}
	return (bytes - objects*int64(space.BodyBytes(block, 0))) * s.scale
}
