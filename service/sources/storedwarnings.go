package sources

import (
	"log/slog"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// maxStoredWarnings limits the warnings about stored resources that are logged at
// startup.
const maxStoredWarnings = 100

// storedWarnings logs the warnings about the resources that the store has at startup,
// which an older lbd may have accepted without them.
type storedWarnings struct {
	logger *slog.Logger
	found  int
}

// log logs warnings, up to the limit. A nil storedWarnings logs none.
func (w *storedWarnings) log(key resource.Key, warnings []decode.Problem) {
	if w == nil {
		return
	}
	for _, p := range warnings {
		if w.found++; w.found <= maxStoredWarnings {
			w.logger.Warn("stored resource", "resource", key, "warning", p)
		}
	}
}

// end logs how many warnings exceeded the limit.
func (w *storedWarnings) end() {
	if more := w.found - maxStoredWarnings; more > 0 {
		w.logger.Warn("stored resources have more warnings: PUT what GET /v1/snapshot returns with dry_run=true to list them", "more", more)
	}
}
