//! The page: a list of all operations, each of them, and the schemas.

use super::document::{Answer, Document, Media, Operation, Parameter, Path, RequestBody, Schema};
use super::kind::kind;
use super::markup::{escaped, paragraphs, with_code};

/// The page as HTML, with `style` in it.
pub(super) fn written(document: &Document, style: &str) -> String {
    let info = &document.info;
    let (title, version) = (escaped(&info.title), escaped(&info.version));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}: HTTP</title>\n<style>{style}</style>\n</head>\n<body>\n\
         <header><h1>{title} <small>{version}</small></h1>\n<p class=\"lead\">{}</p>\n{}\
         <p>The same for machines: <a href=\"/openapi.json\">openapi.json</a>.</p></header>\n\
         <nav aria-label=\"Operations\">\n{}</nav>\n<main>\n{}{}</main>\n</body>\n</html>\n",
        with_code(&info.summary),
        paragraphs(&info.description),
        contents(document),
        document
            .tags
            .iter()
            .map(|tag| section(document, &tag.name, &tag.description))
            .collect::<String>(),
        schemas(document),
    )
}

fn contents(document: &Document) -> String {
    let mut list = String::new();
    for tag in &document.tags {
        list += &format!("<h2>{}</h2>\n<ul>\n", escaped(&tag.name));
        for (method, path, _, operation) in document.operations(&tag.name) {
            let id = escaped(&operation.operation_id);
            list += &format!("<li><a href=\"#{id}\">{}</a></li>\n", called(method, path));
        }
        list += "</ul>\n";
    }
    list
}

/// `GET /path`.
fn called(method: &str, path: &str) -> String {
    let class = method.to_ascii_lowercase();
    format!("<span class=\"method {class}\">{method}</span> <code>{}</code>", escaped(path))
}

fn section(document: &Document, tag: &str, description: &str) -> String {
    let operations = document.operations(tag).map(|(method, path, shared, operation)| {
        written_operation(document, method, path, shared, operation)
    });
    let operations: String = operations.collect();
    format!(
        "<section>\n<h2>{}</h2>\n{}{operations}</section>\n",
        escaped(tag),
        paragraphs(description)
    )
}

fn written_operation(
    document: &Document,
    method: &str,
    path: &str,
    shared: &Path,
    operation: &Operation,
) -> String {
    let parameters = shared.parameters.iter().chain(&operation.parameters);
    let parameters: Vec<_> = parameters.filter_map(|given| document.parameter(given)).collect();
    let samples = operation.samples.iter().map(|sample| {
        let (label, source) = (escaped(&sample.label), escaped(&sample.source));
        format!(
            "<figure><figcaption>{label}</figcaption><pre><code>{source}</code></pre></figure>\n"
        )
    });
    format!(
        "<article id=\"{}\">\n<h3>{}</h3>\n<p class=\"summary\">{}</p>\n{}{}{}{}{}</article>\n",
        escaped(&operation.operation_id),
        called(method, path),
        with_code(&operation.summary),
        paragraphs(&operation.description),
        samples.collect::<String>(),
        written_parameters(&parameters),
        operation.request_body.as_ref().map(body).unwrap_or_default(),
        answers(document, operation),
    )
}

fn written_parameters(parameters: &[&Parameter]) -> String {
    let rows = parameters.iter().map(|parameter| {
        let needed = if parameter.required { " <em>needed</em>" } else { "" };
        vec![
            format!(
                "<code>{}</code> <small>{}</small>{needed}",
                escaped(&parameter.name),
                escaped(&parameter.place)
            ),
            kind(&parameter.schema),
            with_code(&parameter.description),
        ]
    });
    table("Parameters", rows)
}

fn body(body: &RequestBody) -> String {
    let rows = body.content.0.iter().map(|(name, media)| {
        vec![
            format!("<code>{}</code>", escaped(name)),
            kind(&media.schema),
            with_code(&media.schema.description),
        ]
    });
    table("Body", rows)
}

fn answers(document: &Document, operation: &Operation) -> String {
    let answers = operation.responses.0.iter();
    let rows = answers.filter_map(|(status, given)| {
        let answer = document.answer(given)?;
        Some(vec![escaped(status), answered_with(answer), with_code(&answer.description)])
    });
    table("Answers", rows)
}

fn answered_with(answer: &Answer) -> String {
    let one = |(name, media): &(String, Media)| match name.as_str() {
        "application/json" => kind(&media.schema),
        other => format!("<code>{}</code>, {}", escaped(other), kind(&media.schema)),
    };
    let mut parts: Vec<_> = answer.content.0.iter().map(one).collect();
    let headers = answer.headers.0.iter();
    parts.extend(headers.map(|(name, _)| format!("<code>{}:</code>", escaped(name))));
    parts.join("<br>")
}

fn schemas(document: &Document) -> String {
    let schemas = document.components.schemas.0.iter().map(|(name, schema)| {
        let (name, example) = (escaped(name), schema.examples.first());
        let example = example
            .map(|example| format!("<pre><code>{}</code></pre>\n", escaped(&example.to_string())));
        format!(
            "<article id=\"schema-{name}\">\n<h3>{name}</h3>\n{}{}{}{}</article>\n",
            paragraphs(&schema.description),
            what_it_is(schema),
            example.unwrap_or_default(),
            members(schema),
        )
    });
    format!("<section>\n<h2>schemas</h2>\n{}</section>\n", schemas.collect::<String>())
}

fn what_it_is(schema: &Schema) -> String {
    if !schema.all_of.is_empty() {
        let others: Vec<_> = schema.all_of.iter().map(kind).collect();
        return format!("<p>All of {}, and:</p>\n", others.join(", "));
    }
    if schema.properties.0.is_empty() {
        format!("<p>{}</p>\n", kind(schema))
    } else {
        String::new()
    }
}

fn members(schema: &Schema) -> String {
    let rows = schema.properties.0.iter().map(|(name, member)| {
        let needed = if schema.required.contains(name) { " <em>always</em>" } else { "" };
        vec![
            format!("<code>{}</code>{needed}", escaped(name)),
            kind(member),
            with_code(&member.description),
        ]
    });
    table("Members", rows)
}

/// Nothing for no rows.
fn table(caption: &str, rows: impl Iterator<Item = Vec<String>>) -> String {
    let row = |cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("<td>{cell}</td>")).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let rows: String = rows.map(row).collect();
    if rows.is_empty() {
        return rows;
    }
    format!("<h4>{caption}</h4>\n<div class=\"wide\"><table>\n{rows}</table></div>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::openapi::DESCRIPTION;
    use crate::http::router::ROUTES;

    fn page(description: &str) -> String {
        written(&serde_json::from_str(description).unwrap(), "")
    }

    #[test]
    fn has_every_operation_and_leads_nowhere_else() {
        let page = page(DESCRIPTION);
        for (method, path) in ROUTES {
            let heading = format!("<h3>{}</h3>", called(&method.to_uppercase(), path));
            assert_eq!(page.matches(&heading).count(), 1, "{heading}");
        }
        for link in page.split("href=\"").skip(1) {
            let link = link.split('"').next().unwrap();
            match link.strip_prefix('#') {
                Some(id) => assert!(page.contains(&format!(" id=\"{id}\"")), "{link}"),
                None => assert_eq!(link, "/openapi.json"),
            }
        }
        assert!(!page.contains("src="));
    }

    #[test]
    fn texts_are_escaped_wherever_they_stand() {
        // Whatever a text says, the page has no tag of it.
        let evil =
            DESCRIPTION.replace(": \"A", ": \"<script>A").replace(": \"The", ": \"<script>The");
        assert!(evil.matches("<script>").count() > 30);
        assert!(!page(&evil).contains("<script"));
    }
}
