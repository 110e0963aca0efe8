# frozen_string_literal: true

require_relative "lib/lbd/version"

Gem::Specification.new do |gem|
  gem.name = "lbd-client"
  gem.version = Lbd::VERSION
  gem.summary = "Sends HTTP requests to the endpoints that lbd picks"
  gem.description = "gRPC's xDS load balancing for Net::HTTP and Faraday: weights, failover, drops, circuit breaking " \
                    "and outlier detection, as the daemon lbd decides."
  gem.authors = ["lbd"]
  gem.homepage = "https://github.com/lbd-dev/lbd"
  gem.license = "Apache-2.0"
  gem.metadata = { "source_code_uri" => "https://github.com/lbd-dev/lbd/tree/main/clients/ruby",
                   "documentation_uri" => "https://github.com/lbd-dev/lbd/blob/main/clients/ruby/README.md",
                   "changelog_uri" => "https://github.com/lbd-dev/lbd/blob/main/clients/CHANGELOG.md",
                   "bug_tracker_uri" => "https://github.com/lbd-dev/lbd/issues",
                   "rubygems_mfa_required" => "true" }
  gem.required_ruby_version = ">= 3.0"
  gem.files = Dir.glob("{lib,sig}/**/*", base: __dir__).grep(/\.rbs?\z/) + %w[CHANGELOG.md LICENSE README.md]
  gem.require_paths = ["lib"]
end
