package decode

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoregistry"
)

// TestAppliedMessagesAreLinkedIn: a resource without other extensions needs no embedded set,
// and is decoded into Go structs.
func TestAppliedMessagesAreLinkedIn(t *testing.T) {
	urls := []string{discoveryResponseURL, wrapperURL}
	for message := range FieldTable {
		name, _, _ := strings.Cut(message, " ")
		urls = append(urls, typeURLPrefix+name)
	}
	for url := range httpFilters {
		urls = append(urls, url)
	}
	for _, url := range urls {
		if _, err := protoregistry.GlobalTypes.FindMessageByURL(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// BenchmarkReadExtensions is what the first message of an extension costs, once.
func BenchmarkReadExtensions(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := readExtensions(); err != nil {
			b.Fatal(err)
		}
	}
}
