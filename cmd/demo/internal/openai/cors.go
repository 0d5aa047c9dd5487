package openai

import (
	"net/http"
	"slices"
)

// cors lets pages of other origins read the answers, as browsers ask for it. A preflight is
// answered here. Requests without an origin that is allowed are as ever.
func (v *Server) cors(w http.ResponseWriter, r *http.Request) (answered bool) {
	origin := r.Header.Get("Origin")
	all := slices.Contains(v.config.Origins, "*")
	if origin == "" || !all && !slices.Contains(v.config.Origins, origin) {
		return false
	}
	h := w.Header()
	if all {
		h.Set("Access-Control-Allow-Origin", "*")
	} else {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Add("Vary", "Origin")
	}
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}
