@testable import Configuration

/// Loads `text` as the file `d.yaml`.
func load(
  _ text: String? = nil, environment: [String: String] = [:], flags: [(name: String, value: String)] = [],
  files: [String: String] = [:]
) throws(ConfigurationErrors) -> ConfigurationLoader.Outcome {
  var files = files
  if let text { files["d.yaml"] = text }
  return try ConfigurationLoader.load(
    file: text == nil ? nil : "d.yaml", environment: environment, flags: flags,
    readFile: { files[$0].map { Array($0.utf8) } })
}

/// The errors of loading, line by line.
func errors(
  _ text: String? = nil, environment: [String: String] = [:], flags: [(name: String, value: String)] = [],
  files: [String: String] = [:]
) -> [String] {
  do throws(ConfigurationErrors) {
    _ = try load(text, environment: environment, flags: flags, files: files)
    return []
  } catch {
    return error.errors.map(\.description)
  }
}
