package openai

import (
	"net/http"
	"strconv"

	"github.com/kvactor/kvactor/internal/refusals"
	"github.com/kvactor/kvactor/messages"
)

// reset serves POST /reset_prefix_cache. Like vLLM it takes its parameters from the query and
// answers no body.
func (v *Server) reset(w http.ResponseWriter, r *http.Request) *apiError {
	var running, external bool
	for name, values := range r.URL.Query() {
		into := map[string]*bool{
			"reset_running_requests": &running, "reset_external": &external,
		}[name]
		if into == nil {
			return badParam(name, "there is no such parameter here")
		}
		is, err := strconv.ParseBool(values[len(values)-1])
		if err != nil {
			return badParam(name, "%q is neither true nor false", values[len(values)-1])
		}
		*into = is
	}
	forget := v.config.Operations.Reset
	if running {
		forget = v.config.Operations.ResetRunning
	}
	if external {
		return refusal(refusals.New(messages.ErrNotSupported,
			"reset_external is not supported: other engines may use the store"))
	}
	if err := forget(r.Context()); err != nil {
		return refusal(err)
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// invalidate serves POST /invalidate_prefix_cache, which forgets the blocks of an adapter, of a
// salt, or of an adapter under one salt.
func (v *Server) invalidate(w http.ResponseWriter, r *http.Request) *apiError {
	var lora *string
	var salt request
	e := v.named(w, r, field{"lora_name", &lora, nil}, field{"cache_salt", salt.readSalt, nil})
	if e != nil {
		return e
	}
	s := messages.Selector{Salt: salt.salt}
	switch {
	case lora != nil:
		s.LoRA, s.HasLoRA = *lora, true
	case s.Salt == "":
		return badParam("lora_name", "it or cache_salt must be there")
	}
	blocks, err := v.config.Operations.Invalidate(r.Context(), s)
	if err != nil {
		return refusal(err)
	}
	reply(w, map[string]int{"blocks": blocks})
	return nil
}

// setWeights serves POST /set_weights, which begins an epoch of the weights.
func (v *Server) setWeights(w http.ResponseWriter, r *http.Request) *apiError {
	var epoch *string
	if e := v.named(w, r, field{"epoch", &epoch, nil}); e != nil {
		return e
	}
	switch {
	case epoch == nil:
		return badParam("epoch", "it is missing")
	case len(*epoch) > maxSalt: // a label of the metrics has it
		return badParam("epoch", "it has %d bytes, at most %d", len(*epoch), maxSalt)
	}
	if err := v.config.Operations.SetWeights(r.Context(), *epoch); err != nil {
		return refusal(err)
	}
	reply(w, map[string]string{"epoch": *epoch})
	return nil
}
