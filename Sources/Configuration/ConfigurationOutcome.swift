import ByteStreams
import HTTPCodec
import Sessions

extension ConfigurationLoader {
  /// The result of loading: the settings, the places where they were set, errors and warnings.
  package struct Outcome: Sendable {
    package let settings: GatewaySettings
    /// The place of each setting that was set, by path.
    package let origins: [String: String]
    /// The place of each named session and profile, by the prefix of its paths. These places are not in `origins`,
    /// because a name may look like the path of a setting.
    let groupPlaces: [String: String]
    /// The errors; empty if the settings can be used.
    package let errors: [ConfigurationError]
    package let warnings: [ConfigurationError]
    /// The values of each setting as written, without structured settings.
    let written: [String: [WrittenValue]]
    /// Paths of the settings with an invalid value. These settings keep their defaults.
    let failed: Set<String>
    /// Paths of the settings or sections for which the loader has found a conflict with other settings.
    var conflicting: Set<String> = []
    /// Whether a part of the file could not be read as settings. A setting that was not found may be in that part.
    let hasUnreadableParts: Bool

    /// Returns the value in a form that may be shown on a terminal: without secrets, userinfo and queries. References
    /// (`${env:NAME}`) are shown as written.
    package func displayText(of setting: Setting) -> String {
      if setting.isSecret, origins[setting.path] != nil { return "(secret)" }
      let written = written[setting.path] ?? []
      guard setting.isURL || written.contains(where: \.hasReferences) else { return setting.format(settings) }
      let texts = written.map { PrintableText.quoted(setting.masked($0)) }
      return setting.isList ? "[\(texts.joined(separator: ", "))]" : texts.first ?? setting.format(settings)
    }

    /// Throws `errors`, if there are any.
    package func check() throws(ConfigurationErrors) {
      if !errors.isEmpty { throw ConfigurationErrors(errors: errors) }
    }

    /// The settings to display: all settings at the top of the file, and for each named session the settings that were
    /// set or differ from the default.
    package var displayedSettings: [Setting] {
      let defaults = GatewaySettings()
      let named =
        settings.sessions.flatMap { Setting.named($0.name) } + settings.profiles.flatMap { Setting.profile($0.name) }
      return Setting.all + named.filter { origins[$0.path] != nil || $0.format(settings) != $0.format(defaults) }
    }

    /// The settings that differ from their defaults, of the top of the file and of each named session and profile.
    package var changedSettings: [Setting] {
      let defaults = GatewaySettings()
      return displayedSettings.filter { $0.format(settings) != $0.format(defaults) }
    }

    /// Returns this outcome with added errors for these problems, which the loader has found.
    func adding(_ problems: SettingProblems) -> Outcome {
      Outcome(
        settings: settings, origins: origins, groupPlaces: groupPlaces, errors: errors(with: problems).errors,
        warnings: warnings, written: written, failed: failed, conflicting: Set(problems.problems.map(\.key)),
        hasUnreadableParts: hasUnreadableParts)
    }

    /// Returns `errors`, followed by errors for problems that were found in `settings` after loading. Each error has
    /// its place, and its value in a form that may be shown.
    package func errors(with problems: SettingProblems) -> ConfigurationErrors {
      let room = max(0, ConfigurationErrors.limit - errors.count)
      let later = problems.problems.lazy.filter { !followsFromErrors($0) }.prefix(room).map(error)
      return ConfigurationErrors(errors: errors + later)
    }

    /// Whether a setting of this section is invalid or conflicts with others.
    package func hasErrors(in section: String) -> Bool {
      if failed.isEmpty, conflicting.isEmpty { return false }
      let group = group(of: section)
      let isInside = { [self] (key: String) in
        (key == section || key.hasPrefix(section + ".")) && self.group(of: key) == group
      }
      return failed.contains(where: isInside) || conflicting.contains(where: isInside)
    }

    /// Whether the problem may be a mere consequence of one of `errors`. That is so if an unknown key may have been
    /// meant as this setting, or if this setting conflicts with an invalid setting of its section.
    private func followsFromErrors(_ problem: SettingProblem) -> Bool {
      if hasUnreadableParts, !isSet(problem.key) { return true }
      if problem.comparedKeys.contains(where: failed.contains) { return true }
      guard problem.subject == .none || problem.subject == .missing else { return false }
      let section = Self.section(of: problem.key)
      let group = group(of: problem.key)
      return failed.contains {
        ($0.hasPrefix(problem.key + ".") || Self.section(of: $0) == section) && self.group(of: $0) == group
      }
    }

    private static func section(of key: String) -> Substring { key[..<(key.lastIndex(of: ".") ?? key.startIndex)] }

    private func error(for problem: SettingProblem) -> ConfigurationError {
      let values = written[problem.key] ?? []
      var shown: String?
      var itemPlace: String?
      switch problem.subject {
      case .none, .missing: break
      case .value: shown = setting(problem.key)?.errorText(for: values)
      case .item(let index):
        // A variable may have been split after its references were replaced. In that case its values cannot be
        // distinguished, and the first value is used.
        guard let item = index < values.count ? values[index] : values.first else { break }
        itemPlace = item.place
        shown = setting(problem.key)?.errorText(for: [item])
      }
      return ConfigurationError(place: itemPlace ?? place(of: problem.key), message: problem.text(showing: shown))
    }

    private func setting(_ key: String) -> Setting? { settings(beside: key).first { $0.path == key } }

    /// Returns the settings of the session or profile that `key` belongs to, or of the top of the file.
    private func settings(beside key: String) -> [Setting] {
      guard let group = group(of: key) else { return Setting.all }
      let name = String(group.split(separator: ".", maxSplits: 1)[1].dropLast())
      return group.hasPrefix("profiles.") ? Setting.profile(name) : Setting.named(name)
    }

    /// Returns the prefix of the named session or profile that `key` belongs to. The name of a session may contain
    /// dots, and may begin with the name of another session and a dot. The part after the name resolves the ambiguity:
    /// it must be `upstream`, `delivery` or `webhooks`, and no setting's path contains these words in a later part.
    private func group(of key: String) -> String? {
      if key.hasPrefix("profiles.") { return settings.profiles.map(\.pathPrefix).first { key.hasPrefix($0) } }
      guard key.hasPrefix("sessions.") else { return nil }
      var longest: String?
      for session in settings.sessions where key.hasPrefix(session.pathPrefix) {
        let part = key.dropFirst(session.pathPrefix.count).prefix { $0 != "." }
        guard ["upstream", "delivery", "webhooks"].contains(part), session.pathPrefix.count > longest?.count ?? 0 else {
          continue
        }
        longest = session.pathPrefix
      }
      return longest
    }

    /// Whether the setting `key`, or a setting of the section `key`, was set.
    private func isSet(_ key: String) -> Bool { origins[key] != nil || firstSet(in: key) != nil }

    /// Returns the place of the first setting of the section `key` that was set.
    private func firstSet(in key: String) -> String? {
      settings(beside: key).lazy.filter { $0.path.hasPrefix(key + ".") }.compactMap { origins[$0.path] }.first
    }

    /// Returns the place where the setting `key`, or the first setting of the section `key`, was set. If no such
    /// setting was set, returns the place of its named session or profile. Empty for a default.
    private func place(of key: String) -> String {
      origins[key] ?? firstSet(in: key) ?? group(of: key).flatMap { groupPlaces[$0] } ?? ""
    }
  }
}

extension Setting {
  /// Returns `values` for an error message: as they were written, but without secrets.
  func errorText(for values: [WrittenValue]) -> String {
    if isSecret { return "this value" }
    return "'" + values.map(masked).joined(separator: ", ") + "'"
  }

  /// Returns `value` as it was written. If it is a URL, it is returned without userinfo and query.
  func masked(_ value: WrittenValue) -> String {
    isURL && !value.isReference ? MaskedURL.text(value.text, impliedScheme: impliedScheme) : value.text
  }
}
