package api

import "net/http"

// @Summary     Get the state of the store
// @Description Where pushed resources are, how far picks of this daemon are behind what is stored, and why nothing can be stored, if that is so.
// @Success     200 {object} sources.StoreState "the state of the store"
// @Router      /v1/store [get]
func (h *handlers) getStore(w *recorder, _ *http.Request) error {
	state, err := h.Resources.Store()
	return reply(w, state, err)
}
