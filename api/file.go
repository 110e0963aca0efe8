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
//	@Description	Those of the resource directory that hold resources, and those that cannot be used, with the reason. Empty without a resource directory.
//	@ID				listFiles
//	@Tags			resources
//	@Produce		json
//	@Success		200			{object}	service.FilesState	"sorted by name"
//	@Failure		400,414,500	{object}	Problem
//	@Router			/v1/files [get]
func (f *resourceFiles) list(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r.URL.RawQuery); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, f.service.Files())
	return nil
}
