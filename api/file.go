package api

import (
	"net/http"

	"github.com/lbd-dev/lbd/service"
)

// resourceFiles serves /v1/files.
type resourceFiles struct{ service *service.Service }

// list returns the files of the resource directory.
//
//	@Summary		List the resource files
//	@Description	The files of the resource directory that have resources, the files that are invalid, with the reason, and the changes that are held until they are permitted. Empty without a resource directory.
//	@ID				listFiles
//	@Tags			resources
//	@Produce		json
//	@Success		200			{object}	sources.FilesState	"sorted by name"
//	@Failure		400,414,500	{object}	Problem
//	@Router			/v1/files [get]
func (f *resourceFiles) list(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r.URL.RawQuery); err != nil {
		return err
	}
	return reply(w, f.service.Files(), nil)
}

// permit applies a held change.
//
//	@Summary		Permit a held change of resource files
//	@Description	Applies exactly the change with this hash, once: if the same change is made again, it is held again. Idempotent: for a recently permitted change, the answer is the same. lbd answers when picks use the change.
//	@ID				permitFiles
//	@Tags			resources
//	@Produce		json
//	@Param			hash					path		string				true	"the hash of the change, from GET /v1/files"
//	@Success		200						{object}	sources.Permission	"the decision"
//	@Failure		400,403,404,414,500,503	{object}	Problem
//	@Router			/v1/files/held/{hash}/permit [post]
func (f *resourceFiles) permit(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r.URL.RawQuery); err != nil {
		return err
	}
	hash, err := pathName(r, "hash")
	if err != nil {
		return err
	}
	permission, err := f.service.PermitFiles(r.Context(), hash, from(w, r))
	return reply(w, permission, err)
}
