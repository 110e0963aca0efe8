package api

import (
	"bytes"
	"net/http"
	"time"
)

// contract is openapi.yaml.
type contract []byte

// @Summary This contract
// @Produce application/yaml
// @Success 200 {string} string "OpenAPI 3.0"
// @Router  /openapi.yaml [get]
func (c contract) getContract(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(c))
	return nil
}
