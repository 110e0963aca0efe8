package api

import (
	"net/http"

	"github.com/lbd-dev/lbd/service"
)

// resourceFiles answers /v1/files.
type resourceFiles struct{ service *service.Service }

// list answers with the files of the resource directory.
//
//	@Summary		List the resource files
//	@Description	Those of the resource directory that hold resources, and those that cannot be used, with the reason; and the changes that are held until they are permitted. Empty without a resource directory.
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
	writeJSON(w, http.StatusOK, f.service.Files())
	return nil
}

// permit brings a held change into use.
//
//	@Summary		Permit a held change of resource files
//	@Description	Brings exactly the change of this hash into use, once: the same change is held again if it is made again. Idempotent: permitting again what was permitted lately answers as the first time. The answer comes when picks see it.
//	@ID				permitFiles
//	@Tags			resources
//	@Produce		json
//	@Param			hash					path		string				true	"the change's hash, as GET /v1/files has it"
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
	permission, err := f.service.PermitFiles(r.Context(), hash, from(r))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, permission)
	return nil
}
