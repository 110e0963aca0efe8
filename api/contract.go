package api

import (
	"bytes"
	"net/http"
	"time"
)

// contract is openapi.yaml.
type contract []byte

// get returns the contract.
//
//	@Summary	This contract
//	@ID			getContract
//	@Tags		daemon
//	@Produce	application/yaml
//	@Success	200	{string}	string	"OpenAPI 3.0"
//	@Router		/openapi.yaml [get]
func (c contract) get(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(c))
	return nil
}
