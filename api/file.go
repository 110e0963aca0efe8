package api

import (
	"net/http"
)

// @Summary     List the resource files
// @Description The files of the resource directory that have resources, the files that are invalid, with the reason, and the changes that are held until they are permitted. Empty without a resource directory. A caller with clusters gets the files that have resources, all of these names, and no held changes.
// @Success     200 {object} sources.FilesState "sorted by name"
// @Router      /v1/files [get]
func (h *handlers) listFiles(w *recorder, _ *http.Request) error {
	return reply(w, h.Resources.Files().Within(scopeOf(w)), nil)
}

// @Summary     Permit a held change of resource files
// @Description Applies exactly the change with this hash, once: if the same change is made again, it is held again. Idempotent: for a recently permitted change, the answer is the same. lbd answers when picks use the change.
// @Success     200 {object} sources.Permission "the decision"
// @Router      /v1/files/held/{hash}/permit [post]
func (h *handlers) permitFiles(w *recorder, r *http.Request) error {
	hash, err := readNamed(r, "hash")
	if err != nil {
		return err
	}
	permission, err := h.Changes.PermitFiles(r.Context(), hash, from(w, r))
	return reply(w, permission, err)
}
