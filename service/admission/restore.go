package admission

import (
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Restore returns the versions of an archive with the values of their items, and with the
// warnings about rules that are newer than they. o are the options of the decoder,
// without name and format. An item that the decoder rejects now has no value.
func Restore(versions map[string]*files.Version, o decode.Options) map[string]*files.Version {
	// No lbd that archives versions of files made plain connections for a certificate
	// provider that it did not have.
	o.Format, o.Stored, o.Secured = decode.FormatProtobuf, true, true
	out := make(map[string]*files.Version, len(versions))
	for name, v := range versions {
		decoded := *v
		decoded.Items = make([]resource.Item, len(v.Items))
		for i, item := range v.Items {
			o.Name = item.Key.Name
			var warnings []decode.Problem
			decoded.Items[i], warnings, _ = decode.Item(item, o)
			decoded.Warnings = append(decoded.Warnings, warnings...)
		}
		out[name] = &decoded
	}
	return out
}
