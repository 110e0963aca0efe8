package sources

import "context"

// Settle returns once all trees have their newest config.
func (s *Sources) Settle(ctx context.Context) error {
	var names []string
	for _, t := range s.pushes.Ledger.Hosted().Sorted() {
		names = append(names, t.Name)
	}
	return s.pushes.Ledger.Settle(ctx, names)
}
