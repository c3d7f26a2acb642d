//! Tables as pictures: for each row a group of bars, one for each server, as long as its share of the row's largest figure.
//!
//! A picture brings its own background and is readable in light and dark: whoever shows it says which by its colour scheme.

use std::fmt::Write as _;

use super::contenders::{Contenders, Who};
use super::write::Table;

pub(super) const WIDTH: usize = 860;
const LABEL: usize = 330;
const FIGURE: usize = 70;
const BAR: usize = 15;
const GAP: usize = 14;
const TOP: usize = 64;

/// What a server's bars are called in [`STYLE`].
pub(super) fn class(who: Who) -> &'static str {
    match who {
        Who::Memcached | Who::Aside => "memcached",
        Who::Nuthatch => "nuthatch",
        Who::Bare | Who::Objects => "bare",
        Who::Redis | Who::Squid | Who::Ideal | Who::Text => "redis",
        Who::Direct => "direct",
        Who::Forwarded => "forwarded",
        Who::Floor | Who::Calls => "floor",
        Who::Nginx => "memcached",
        Who::Varnish => "bare",
        Who::Twemproxy => "twemproxy",
        Who::Router => "router",
        Who::Tier | Who::Rows => "tier",
    }
}

/// The colours. Text stands out from the ground by 4.5 to 1 or more and bars by 3 to 1, as WCAG 2 asks of text and graphics.
const STYLE: &str = "\
<style>
polyline { fill-opacity: 0; stroke-width: 2 }
.ground { fill: #ffffff } .text { fill: #1f2328 } .figure { fill: #57606a }
.memcached { fill: #8491a0 } .nuthatch { fill: #1a7f4b } .bare { fill: #57606a } .redis { fill: #c4473a }
.twemproxy { fill: #c4473a; stroke: #c4473a } .router { fill: #57606a; stroke: #57606a } .tier { fill: #1a7f4b; stroke: #1a7f4b }
.direct { fill: #0969da } .forwarded { fill: #8250df } .floor { fill: #9a6700 }
@media (prefers-color-scheme: dark) {
.ground { fill: #0d1117 } .text { fill: #e6edf3 } .figure { fill: #9aa5b1 }
.memcached { fill: #6e7b8a } .nuthatch { fill: #3fb97c } .bare { fill: #b4bec9 } .redis { fill: #e5695c }
.twemproxy { fill: #e5695c; stroke: #e5695c } .router { fill: #b4bec9; stroke: #b4bec9 } .tier { fill: #3fb97c; stroke: #3fb97c }
.direct { fill: #4493f8 } .forwarded { fill: #a371f7 } .floor { fill: #d29922 }
}
</style>
";

/// The picture of a table, as SVG.
pub(super) fn bars(table: &Table, contenders: &Contenders) -> String {
    let rows: Vec<_> = table.rows.iter().filter(|row| row.charted).collect();
    let height = TOP + rows.len() * (table.who.len() * BAR + GAP);
    let mut svg = head(table, contenders, height);
    let mut y = TOP;
    for row in rows {
        let figures: Vec<(Who, f64)> = table
            .who
            .iter()
            .filter_map(|&who| row.median(who).filter(|figure| figure.is_finite()).map(|figure| (who, figure)))
            .collect();
        let largest = figures.iter().map(|(_, figure)| *figure).fold(f64::MIN_POSITIVE, f64::max);
        let middle = y + figures.len() * BAR / 2 + 4;
        let _ = writeln!(
            svg,
            "<text class=\"text\" x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{}</text>",
            LABEL - 10,
            escape(&row.name)
        );
        for (who, figure) in figures {
            let width = (figure / largest * (WIDTH - LABEL - FIGURE) as f64).max(1.0);
            let _ = writeln!(
                svg,
                "<rect class=\"{}\" x=\"{LABEL}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\"/>\
                 <text class=\"figure\" x=\"{:.1}\" y=\"{}\" font-size=\"11\">{figure:.decimals$}</text>",
                class(who),
                BAR - 2,
                LABEL as f64 + width + 5.0,
                y + BAR - 5,
                decimals = row.decimals,
            );
            y += BAR;
        }
        y += GAP;
    }
    svg + "</svg>\n"
}

/// The beginning of a picture: its ground, the table's title, and which colour is whose.
pub(super) fn head(table: &Table, contenders: &Contenders, height: usize) -> String {
    let title = escape(&format!("{}{}", table.title, table.chart.map_or("", |chart| chart.caption)));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>{title}</title>\n{STYLE}<rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
         <text class=\"text\" x=\"12\" y=\"24\" font-size=\"16\" font-weight=\"bold\">{title}</text>\n"
    );
    let names: Vec<(Who, String)> = table.who.iter().map(|&who| (who, contenders.name(who))).collect();
    let wide = |name: &String| 16 + 30 + name.len() * 7;
    // Behind the rows' names, or from the left where they are many.
    let mut x = LABEL.min(WIDTH.saturating_sub(names.iter().map(|(_, name)| wide(name)).sum())).max(12);
    for (who, name) in names {
        let _ = writeln!(
            svg,
            "<rect class=\"{}\" x=\"{x}\" y=\"36\" width=\"11\" height=\"11\"/><text class=\"text\" x=\"{}\" y=\"46\">{}</text>",
            class(who),
            x + 16,
            escape(&name)
        );
        x += wide(&name);
    }
    svg
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::super::measure::Samples;
    use super::super::write::{Chart, Row};
    use super::*;

    /// Times of every server, some of rows whose names want escaping.
    fn table() -> (Table, Contenders) {
        let settings = Settings { memcached: "true".to_owned(), ..crate::flags::tests::defaults() };
        let contenders = Contenders::find(&settings).unwrap();
        let mut table = Table::new("A & B", "", vec![Who::Memcached, Who::Nuthatch, Who::Bare]);
        table.chart = Some(Chart { name: "test", caption: ": microseconds, less is better" });
        let samples = |who, figure| Samples { who, rounds: vec![figure] };
        table.rows.push(Row::new("a < b", 1, vec![samples(Who::Memcached, 10.0), samples(Who::Nuthatch, 5.0)]));
        let all = [(Who::Memcached, 4.0), (Who::Nuthatch, 3.0), (Who::Bare, 2.0)];
        table.rows.push(Row::new(
            "text get, 50 connections",
            2,
            all.map(|(who, figure)| samples(who, figure)).to_vec(),
        ));
        table.rows.push(Row { charted: false, ..Row::new("hidden", 1, Vec::new()) });
        (table, contenders)
    }

    #[test]
    fn bars_are_as_long_as_their_share() {
        let (table, contenders) = table();
        let svg = bars(&table, &contenders);
        assert!(svg.contains("A &amp; B") && svg.contains("a &lt; b") && !svg.contains("hidden"));
        assert!(svg.contains("width=\"460.0\"") && svg.contains("width=\"230.0\""), "{svg}");
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
    }

    #[test]
    fn every_colour_is_given_for_light_and_dark() {
        let (table, contenders) = table();
        let svg = bars(&table, &contenders);
        let (light, dark) = STYLE.split_once("prefers-color-scheme: dark").unwrap();
        for (used, _) in svg.split("class=\"").skip(1).filter_map(|rest| rest.split_once('"')) {
            let rule = format!(".{used} {{ fill: #");
            assert!(light.contains(&rule) && dark.contains(&rule), "{used}");
        }
        assert!(!svg.split_once("</style>").unwrap().1.contains("fill="), "colours stand in the style alone");
    }
}
