/// One setting: its path, accepted values and summary, and where its value is stored. The file, the environment, the
/// flags and the help all use this declaration.
///
/// The tables (`Settings+HTTP.swift` and the other `Settings+` files) declare settings with a `SettingScope`.
package struct Setting {
  /// Dotted path in the file, such as `upstream.heartbeat.interval`.
  package let path: String
  /// One line for `--help`.
  package let summary: String
  /// The flag on the command line, without dashes; nil if there is none.
  package let flag: String?
  /// Whether the value is never displayed.
  package let isSecret: Bool
  /// The accepted values, for the text of an error. It continues a sentence that begins with "use".
  package let expectation: String
  /// Whether a reload can change the setting without a restart.
  package let isReloadable: Bool
  /// Whether the value consists of URLs, whose userinfo and query may be secret.
  let isURL: Bool
  /// Whether the value is the path of a file.
  let isPath: Bool
  /// The accepted values, for the schema.
  let schema: ValueSchema
  /// The scheme of a URL that is written without one; nil if every URL must have one.
  let impliedScheme: String?
  let shape: Shape
  /// Returns the value as it is written in the file.
  package let format: (GatewaySettings) -> String
  /// Copies the value from `source` to `target`.
  package let copy: (_ source: GatewaySettings, _ target: inout GatewaySettings) -> Void
  private let words: [String]

  /// How the value is written, and how it is stored.
  enum Shape {
    case scalar((String, inout GatewaySettings) throws(InvalidValue) -> Void)
    /// `isMapping`: the values are `key: value` pairs.
    case list(isMapping: Bool, ([String], inout GatewaySettings) throws(InvalidValue) -> Void)
    /// The value consists of YAML nodes. `isText`: the value is usually one plain value, which needs no quotes in a
    /// variable.
    case structure(isText: Bool, (StructureReader, YAMLNode, inout GatewaySettings) throws(ConfigurationError) -> Void)
  }

  init<Value>(
    _ path: String, _ value: WritableKeyPath<GatewaySettings, Value>, _ form: ValueFormat<Value>, _ summary: String,
    flag: String?, isSecret: Bool, isReloadable: Bool
  ) {
    self.path = path
    self.summary = summary
    self.flag = flag
    self.isSecret = isSecret
    self.isReloadable = isReloadable
    expectation = form.expectation
    words = form.words
    isURL = form.isURL
    isPath = form.isPath
    schema = form.schema
    impliedScheme = form.impliedScheme
    format = { form.format($0[keyPath: value]) }
    copy = { $1[keyPath: value] = $0[keyPath: value] }
    shape =
      switch form.reader {
      case .scalar(let read):
        .scalar { text, settings throws(InvalidValue) in settings[keyPath: value] = try read(text) }
      case .list(let isMapping, let read):
        .list(isMapping: isMapping) { texts, settings throws(InvalidValue) in settings[keyPath: value] = try read(texts)
        }
      case .structure(let isText, let read):
        .structure(isText: isText) { reader, node, settings throws(ConfigurationError) in
          settings[keyPath: value] = try read(reader, node, path)
        }
      }
  }

  /// `DRAWBRIDGE_UPSTREAM_HEARTBEAT_INTERVAL` for `upstream.heartbeat.interval`.
  package var environmentName: String {
    "DRAWBRIDGE_" + path.uppercased().map { $0 == "." ? "_" : String($0) }.joined()
  }

  /// Suggests the accepted word that is nearest to `word`, for the text of an error.
  func suggestion(for word: String) -> String { Suggestion.text(for: word, among: words) }

  var isList: Bool { if case .list = shape { true } else { false } }

  /// Whether the values are `key: value` pairs.
  var isMapping: Bool { if case .list(isMapping: true, _) = shape { true } else { false } }

  /// Whether the value consists of YAML nodes, which `StructureReader` reads.
  package var isStructured: Bool { if case .structure = shape { true } else { false } }
}
